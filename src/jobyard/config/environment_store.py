"""The store that the environment names, for programs that use the library."""

from __future__ import annotations

import logging
import os

from jobyard.config.settings import STORE
from jobyard.config.store_url import shown
from jobyard.operations.secrets import secret

log = logging.getLogger("jobyard.app")

SECTIONED = "JOBYARD_STORE__URL"
_warned: set[tuple[str, str]] = set()


def store_of_environment() -> str:
    """The URL in JOBYARD_STORE, or in the file that JOBYARD_STORE_FILE names; empty if there is none."""
    return secret(STORE.variable, os.environ) or secret(SECTIONED, os.environ)


def warn_of_other_store(url: str) -> None:
    """Log, once, that a program uses another store than the environment names: commands would look at that one."""
    named = store_of_environment()
    if named and named != url and (url, named) not in _warned:
        _warned.add((url, named))
        text = "this program uses the store %s, which its code names, and not %s, which %s names"
        log.warning(text, shown(url), shown(named), STORE.variable)
