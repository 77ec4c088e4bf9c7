"""Configuration: jobyard.yaml, overridden by environment variables, overridden by flags."""

from jobyard.config.load import LoadedConfig, load
from jobyard.config.sections import Configuration

__all__ = ["Configuration", "LoadedConfig", "load"]
