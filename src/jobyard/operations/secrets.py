"""Secrets, read from the environment or a file; never from a command line, never shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobyard.errors import ConfigurationError


def secret(variable: str, environment: Mapping[str, str]) -> str:
    """The value of the variable, or the content of the file that `<variable>_FILE` names."""
    value = environment.get(variable, "")
    path = environment.get(f"{variable}_FILE", "")
    if value or not path:
        return value
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"Cannot read {path}, named by {variable}_FILE: {getattr(error, 'strerror', None) or 'not text'}."
        ) from error
