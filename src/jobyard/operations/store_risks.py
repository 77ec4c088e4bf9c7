"""Warnings at the start of a worker, a server or a scheduler: settings of the store with which it may lose jobs."""

from __future__ import annotations

import logging

from jobyard.errors import StoreError
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.store")


async def warn_of_risks(store: Store) -> None:
    try:
        found = await store.risks()
    except StoreError:
        return  # what fails here fails again where it is needed, and is reported there
    for finding in found:
        log.warning("the store %s may lose jobs: %s. %s", store.url, finding.message, finding.advice.capitalize())
