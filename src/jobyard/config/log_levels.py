"""Log levels: one for all of jobyard, or one per component."""

from __future__ import annotations

from jobyard.errors import ConfigurationError, did_you_mean

LEVELS = ("debug", "info", "warning", "error", "critical")
ALIASES = {"warn": "warning", "fatal": "critical"}
COMPONENTS = ("app", "main", "server", "store", "worker")


def parse_levels(text: str, usual: str) -> dict[str, str]:
    """Levels by logger name; `usual` applies where the text sets none.

    >>> parse_levels("store=debug", "info")
    {'jobyard': 'info', 'jobyard.store': 'debug'}
    """
    levels = {"jobyard": usual}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        component, equals, level = part.rpartition("=")
        level = ALIASES.get(level.lower(), level.lower())
        if level not in LEVELS:
            raise ConfigurationError(
                f"A log level must be one of {', '.join(LEVELS)}, not {level}.{did_you_mean(level, LEVELS)}"
            )
        if equals and component not in COMPONENTS:
            raise ConfigurationError(
                f"Unknown log component {component} (known: {', '.join(COMPONENTS)})."
                f"{did_you_mean(component, COMPONENTS)}"
            )
        levels[f"jobyard.{component}" if equals else "jobyard"] = level
    return levels
