"""The command line. Commands are in `commands/`, one module each; output is formatted in `render/`."""

from jobyard.cli.root import cli, main

__all__ = ["cli", "main"]
