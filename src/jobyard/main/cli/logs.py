"""Log lines on stderr, a level for all and one for each component."""

from __future__ import annotations

import logging

from jobyard.errors import ConfigurationError, did_you_mean
from jobyard.main.cli.render import echo
from jobyard.main.settings import LOG_LEVEL

LEVELS = ("debug", "info", "warning", "error", "critical")
ALIASES = {"warn": "warning", "fatal": "critical"}
COMPONENTS = ("app", "main", "store", "worker")


def parse_levels(text: str, usual: str) -> dict[str, str]:
    """Levels by logger name.

    >>> parse_levels("store=debug", "info")
    {'jobyard': 'info', 'jobyard.store': 'debug'}
    """
    levels = {"jobyard": usual}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        component, equals, level = part.rpartition("=")
        level = ALIASES.get(level.lower(), level.lower())
        if level not in LEVELS:
            raise ConfigurationError(
                f"A log level is one of {', '.join(LEVELS)}, not {level}.{did_you_mean(level, LEVELS)}"
            )
        if equals and component not in COMPONENTS:
            raise ConfigurationError(
                f"There is no component {component} (known: {', '.join(COMPONENTS)})."
                f"{did_you_mean(component, COMPONENTS)}"
            )
        levels[f"jobyard.{component}" if equals else "jobyard"] = level
    return levels


def set_up_logs(text: str | None, usual: str = LOG_LEVEL.default, *, everything: bool = False) -> None:
    """With `everything` also what the application logs, unless it has set up logging itself."""
    levels = parse_levels(text or "", usual)
    logger, root = logging.getLogger("jobyard"), logging.getLogger()
    if not any(isinstance(handler, _OurHandler) for handler in logger.handlers):
        logger.addHandler(_OurHandler())
        logger.propagate = False
    if everything and not root.handlers:
        root.addHandler(_OurHandler())
        root.setLevel(levels["jobyard"].upper())
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())


class _OurHandler(logging.Handler):
    """Told apart from handlers that an application may have added; finds stderr anew, as tests change it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), err=True)
