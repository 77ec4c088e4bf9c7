"""What every test may ask for: real servers, started when first wanted; logging as it was afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from jobyard.config.log_levels import COMPONENTS

pytest_plugins = ["tests.servers.fixtures"]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command sets up logging for its whole process, which other tests share."""
    loggers = [logging.getLogger(name) for name in ("jobyard", *(f"jobyard.{part}" for part in COMPONENTS))]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers
