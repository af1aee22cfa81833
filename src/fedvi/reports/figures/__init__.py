"""Figures: one file per figure."""
