"""The command line: parse, call, print. Everything heavy is imported by the command that needs it."""

from fedvi.cli.main import app, main

__all__ = ["app", "main"]
