"""What the program is told before it starts: jobyard.yaml, below the environment, below flags."""

from jobyard.config.load import Found, load
from jobyard.config.sections import Configuration

__all__ = ["Configuration", "Found", "load"]
