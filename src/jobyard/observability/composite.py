"""An observer that passes events to several others."""

from __future__ import annotations

from jobyard.domain import events as e
from jobyard.ports.observer import Observer


class CompositeObserver:
    """Calls the observers in the given order, with the events that each wants."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    @property
    def wants_each_job(self) -> bool:
        # Read for every job: a plain loop is the fastest.
        for observer in self._observers:  # noqa: SIM110
            if observer.wants_each_job:
                return True
        return False

    def observe(self, event: e.Event) -> None:
        of_each_job = isinstance(event, e.JobStarted | e.JobReported) or (
            isinstance(event, e.JobSettled) and event.ending is None
        )
        for observer in self._observers:
            if not of_each_job or observer.wants_each_job:
                observer.observe(event)
