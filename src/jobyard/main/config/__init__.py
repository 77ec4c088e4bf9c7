"""What the program is told before it starts: jobyard.yaml, below the environment, below flags."""

from jobyard.main.config.load import Found, load
from jobyard.main.config.shape import Configuration

__all__ = ["Configuration", "Found", "load"]
