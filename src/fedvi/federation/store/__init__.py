"""What the coordinator keeps: its file, whose turn it is, what is read out of it, and how it is shown."""
