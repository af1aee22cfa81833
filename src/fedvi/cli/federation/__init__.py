"""`fedvi federation`: what a coordinator does."""
