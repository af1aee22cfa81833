"""A real federation: a coordinator and sites, durable, one process each."""
