"""The command line: one small file per family of commands."""

from jobyard.cli.root import cli, main

__all__ = ["cli", "main"]
