"""A schema from a sample table: what each column becomes, and why."""
