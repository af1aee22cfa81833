"""The live page of a running federation: what the coordinator knows, shown in a browser."""
