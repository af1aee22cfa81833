"""What carries a site's bytes to the coordinator: one module or folder per engine."""
