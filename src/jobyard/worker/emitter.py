"""Passes events to an observer without letting it stop the work."""

from __future__ import annotations

import logging

from jobyard.domain.events import Event
from jobyard.ports.observer import Observer

log = logging.getLogger("jobyard.worker")


class EventEmitter:
    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def __call__(self, event: Event) -> None:
        try:
            self.observer.observe(event)
        except Exception:
            log.exception("an observer failed on %s", type(event).__name__)
