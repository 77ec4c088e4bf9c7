"""The command line: one small file per family of commands."""

from jobyard.main.cli.root import cli, main

__all__ = ["cli", "main"]
