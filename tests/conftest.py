"""What every test may ask for: real servers, started when first wanted; logging as it was afterwards."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.config.log_levels import COMPONENTS

pytest_plugins = ["tests.servers.fixtures"]

# No test trusts a public authority, and loading them all took most of the start of an HTTP client.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command sets up logging for its whole process, which other tests share."""
    loggers = [logging.getLogger(name) for name in ("jobyard", *(f"jobyard.{part}" for part in COMPONENTS))]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers
