"""A secret from the environment: never on a command line, never shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobyard.errors import ConfigurationError


def secret(variable: str, environment: Mapping[str, str]) -> str:
    """From the variable, or from the file that the same variable with _FILE names."""
    value = environment.get(variable, "")
    path = environment.get(f"{variable}_FILE", "")
    if value or not path:
        return value
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{variable}_FILE names {path}, which cannot be read: {getattr(error, 'strerror', None) or 'not text'}."
        ) from error
