"""The factory of jobs, for every entry point: Python, HTTP, the command line and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jobyard.api.schemas.jobs import KindView
from jobyard.domain.access import Principal
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.domain.job_options import DEFAULTS, CheckedOptions, with_options
from jobyard.domain.options import Option, check_name
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadInput, UnknownKind
from jobyard.executors.python.declared_task import DeclaredTask
from jobyard.executors.python.handlers import Handler
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, to_json
from jobyard.operations.schedule_options import BY_FIELD, make_schedule

NOTHING_GIVEN: Mapping[str, Any] = {}


class JobFactory:
    """Makes a NewJob from a kind, a payload and options.

    With the tasks of an app it accepts only their kinds, checks payloads against their parameters, and takes their
    options as defaults. Without tasks it accepts any kind, with an object as payload.
    """

    def __init__(
        self, max_payload_bytes: int = MAX_PAYLOAD_BYTES, tasks: Mapping[str, DeclaredTask] | None = None
    ) -> None:
        self.max_payload_bytes = max_payload_bytes
        self._tasks = tasks

    def new_job(
        self, kind: str, payload: Any, given: Mapping[str, Any] = NOTHING_GIVEN, job_id: str | None = None
    ) -> NewJob:
        """`given` are options, named as in JobOptions. Raises BadInput with the name of the invalid `option`."""
        handler, defaults = self._declared(kind)
        options = with_options(defaults, given) if given else defaults
        return self.build(kind, handler, payload, options, job_id)

    def new_job_with(self, kind: str, payload: Any, options: CheckedOptions) -> NewJob:
        """A job with exactly these options, such as those of another job. Raises BadInput."""
        return self.build(kind, self._declared(kind)[0], payload, options)

    def _declared(self, kind: str) -> tuple[Handler | None, CheckedOptions]:
        if self._tasks is None:
            check_name("kind", kind)
            return None, DEFAULTS
        task = self._tasks.get(kind)
        if task is None:
            raise UnknownKind.of(kind, self._tasks)
        return task.handler, task.defaults

    def build(
        self, kind: str, handler: Handler | None, payload: Any, options: CheckedOptions, job_id: str | None = None
    ) -> NewJob:
        """The same from options that are checked already."""
        most, private, encoding = self.max_payload_bytes, None, "private"
        try:
            if options.private_payload is not None:
                private = to_json(options.private_payload, "private payload", most)
            encoding = "payload"
            if handler is not None:
                data = handler.encode(payload, most)
            elif isinstance(payload, dict):
                data = to_json(payload, "payload", most)
            else:
                raise BadInput("payload must be an object with the handler's parameters.")
        except BadInput as error:
            error.option = encoding
            raise
        job = options.new_job(job_id or new_id(), kind, data, private)
        if handler is not None and handler.is_workflow:
            return msgspec.structs.replace(job, is_workflow=True)
        return job

    def schedule_fields(self, kind: str) -> dict[str, Any]:
        """Fields of a schedule as the handler of this kind declares them; empty for an unknown kind."""
        task = None if self._tasks is None else self._tasks.get(kind)
        if task is None:
            return {}
        own = task.defaults
        fields: dict[str, Any] = {
            name: getattr(own, name) for name in ("queue", "group", "priority", "backoff", "tags")
        }
        if task.declares_max_attempts:
            fields["max_retry"] = own.max_attempts - 1
        if own.timeout_seconds is not None:
            fields["timeout_seconds"] = own.timeout_seconds
        return fields

    def new_schedule(self, given: Mapping[str, Any], options: Mapping[str, Option] = BY_FIELD) -> Schedule:
        """A schedule whose jobs this factory would make, with the handler's own options where none are given.

        `given` are named by field, or as in `options`. Raises BadInput.
        """
        schedule = make_schedule(given, self.schedule_fields(str(given.get("kind"))), options)
        job = self.new_job(schedule.kind, msgspec.json.decode(schedule.payload))
        return msgspec.structs.replace(schedule, payload=msgspec.Raw(job.payload))

    def may_submit(self, principal: Principal, kind: str) -> bool:
        """Whether the kind is in scope: named by the token, or declared by its handler in a queue of the token.

        Otherwise a token restricted to a queue could run every handler of the app by submitting its kind to that queue.
        Without tasks, the queues of handlers are not known.
        """
        if principal.kinds:
            return kind in principal.kinds
        if not principal.queues or self._tasks is None:
            return True
        task = self._tasks.get(kind)
        return task is not None and task.defaults.queue in principal.queues

    def has_handler(self, kind: str) -> bool:
        return self._tasks is not None and kind in self._tasks

    def kinds(self) -> tuple[KindView, ...] | None:
        """The kinds of the app, by name; None if any kind is accepted."""
        if self._tasks is None:
            return None
        return tuple(
            KindView(
                name=name,
                queue=task.defaults.queue,
                parameters=task.handler.names,
                max_attempts=task.defaults.max_attempts,
                timeout_seconds=task.defaults.timeout_seconds,
                is_workflow=task.handler.is_workflow,
            )
            for name, task in sorted(self._tasks.items())
        )
