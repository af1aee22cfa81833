"""Tables as they come: files and data frames of all kinds, read in chunks of numbers and text."""
