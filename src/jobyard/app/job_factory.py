"""Jobs that come through a door, made by the handlers of the application."""

from __future__ import annotations

from typing import Any

from jobyard.api.schemas.jobs import KindView
from jobyard.app.jobyard import Jobyard
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.executors.python.payload import to_json
from jobyard.operations.job_options import with_options
from jobyard.operations.submit import AnyKind, MakeJob


class OfApp:
    """Only kinds that the application declares, with payloads that their handlers can read."""

    def __init__(self, yard: Jobyard) -> None:
        self._yard = yard

    def __call__(self, kind: str, payload: Any, words: dict[str, Any], job_id: str | None = None) -> NewJob:
        found = self._yard.kinds.get(kind)
        defaults = self._yard.definitions[kind].defaults
        chosen, most = with_options(defaults, words) if words else defaults, self._yard.max_payload_bytes
        private = None if chosen.private is None else to_json(chosen.private, "private payload", most)
        return chosen.new_job(job_id or new_id(), kind, found.encode(payload, most), private)

    def kinds(self) -> tuple[KindView, ...] | None:
        return tuple(
            KindView(
                name=name,
                queue=definition.defaults.queue,
                parameters=definition.kind.names,
                max_attempts=definition.defaults.max_attempts,
                timeout_seconds=definition.defaults.timeout_seconds,
            )
            for name, definition in sorted(self._yard.definitions.items())
        )


def make_job(yard: Jobyard, *, has_app: bool) -> MakeJob:
    return OfApp(yard) if has_app else AnyKind(yard.max_payload_bytes)
