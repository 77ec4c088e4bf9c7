"""Jobs that come through a door, made by the handlers of the application."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.job import NewJob
from jobyard.main.definition import Enqueue
from jobyard.main.yard import Jobyard
from jobyard.service.options import with_options
from jobyard.service.submit import AnyKind, MakeJob
from jobyard.service.wire import KindView


class OfApp:
    """Only kinds that the application declares, with payloads that their handlers can read."""

    def __init__(self, yard: Jobyard) -> None:
        self._yard = yard

    def __call__(self, kind: str, payload: Any, words: dict[str, Any], job_id: str | None = None) -> NewJob:
        self._yard.kinds.get(kind)
        definition = self._yard.definitions[kind]
        chosen = with_options(definition.defaults, words) if words else definition.defaults
        job = Enqueue[Any, Any](self._yard, definition.kind, chosen).call_with(payload).new_job
        return job if job_id is None else msgspec.structs.replace(job, id=job_id)

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
