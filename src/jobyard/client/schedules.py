"""Verbs of the client for schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from jobyard.api.schemas import schedules as schemas
from jobyard.client.address import path
from jobyard.client.transport import Transport, as_query
from jobyard.errors import BadOption, did_you_mean


class ScheduleVerbs:
    _transport: Transport

    def schedules(
        self, *, queue: str | None = None, kind: str | None = None, page_size: int = 200
    ) -> AsyncIterator[schemas.ScheduleView]:
        """All schedules, by name."""
        query = {"queue": queue, "kind": kind, "page_size": page_size}
        return self._transport.walk("/v1/schedules", schemas.SchedulePage, query)

    async def schedule(self, name: str) -> schemas.ScheduleView:
        return await self._transport.call("GET", path("v1", "schedules", name), schemas.ScheduleView)

    async def add_schedule(
        self, /, name: str, expression: str, kind: str, payload: Any = None, **fields: Any
    ) -> schemas.ScheduleView:
        """`fields`: timezone, queue, group, priority, max_retry, timeout_seconds, enabled, overlap, missed,
        missed_limit, jitter_seconds, start_at, end_at; see docs/howto/cron.md.
        """
        given = {"name": name, "expression": expression, "kind": kind, "payload": {} if payload is None else payload}
        body = _body(schemas.ScheduleRequest, given | fields)
        return await self._transport.call("POST", "/v1/schedules", schemas.ScheduleView, body=body)

    async def edit_schedule(self, /, name: str, **fields: Any) -> schemas.ScheduleView:
        """Change the given fields; the others stay as they are."""
        body = _body(schemas.ScheduleChange, fields)
        return await self._transport.call("PATCH", path("v1", "schedules", name), schemas.ScheduleView, body=body)

    async def remove_schedule(self, name: str) -> None:
        """Remove a schedule and its history; its jobs stay."""
        await self._transport.call("DELETE", path("v1", "schedules", name), type(None))

    async def pause_schedule(self, name: str) -> schemas.ScheduleView:
        return await self._transport.call("POST", path("v1", "schedules", name, "pause"), schemas.ScheduleView)

    async def resume_schedule(self, name: str) -> schemas.ScheduleView:
        """Instants while it was paused are not made up for."""
        return await self._transport.call("POST", path("v1", "schedules", name, "resume"), schemas.ScheduleView)

    async def run_schedule(self, name: str) -> str:
        """Insert a job of the schedule now; returns the id of the job."""
        return (await self._transport.call("POST", path("v1", "schedules", name, "run"), schemas.RunResponse)).job_id

    async def next_of_schedule(self, name: str, count: int = 5) -> schemas.NextTicksResponse:
        at, query = path("v1", "schedules", name, "next"), as_query({"count": count})
        return await self._transport.call("GET", at, schemas.NextTicksResponse, query=query)

    async def next_of_cron(self, expression: str, timezone: str = "UTC", count: int = 5) -> schemas.NextTicksResponse:
        """The meaning of a cron expression in words, and its next instants."""
        query = as_query({"expression": expression, "timezone": timezone, "count": count})
        return await self._transport.call("GET", "/v1/cron/next", schemas.NextTicksResponse, query=query)

    def schedule_history(self, name: str, *, page_size: int = 50) -> AsyncIterator[schemas.TickView]:
        """The decided instants of a schedule, newest first."""
        at = path("v1", "schedules", name, "history")
        return self._transport.walk(at, schemas.HistoryPage, {"page_size": page_size})


def _body(shape: type[msgspec.Struct], fields: dict[str, Any]) -> msgspec.Struct:
    """
    >>> _body(schemas.ScheduleChange, {"expresion": "@daily"})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown schedule field "expresion". Did you mean "expression"?
    """
    for field in fields:
        if field not in shape.__struct_fields__:
            hint = did_you_mean(field, shape.__struct_fields__)
            raise BadOption(f'Unknown schedule field "{field}".{hint}', option=field)
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        raise BadOption(f"Invalid schedule: {error}.") from error
