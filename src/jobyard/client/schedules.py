"""Verbs of the client for schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import UNSET

from jobyard.api.schemas.schedules import (
    HistoryPage,
    NextTicksResponse,
    RunResponse,
    ScheduleChange,
    SchedulePage,
    ScheduleRequest,
    ScheduleView,
    TickView,
)
from jobyard.client.address import path
from jobyard.client.transport import Transport, as_query
from jobyard.errors import BadOption, did_you_mean


class ScheduleVerbs:
    _transport: Transport

    async def schedules(
        self, *, queue: str | None = None, kind: str | None = None, page_size: int = 200
    ) -> AsyncIterator[ScheduleView]:
        """All schedules, by name."""
        filters = {"queue": queue, "kind": kind, "page_size": page_size}
        token: str | None = None
        while True:
            query = as_query(filters | {"page_token": token})
            page = await self._transport.call("GET", "/v1/schedules", SchedulePage, query=query)
            for schedule in page.items:
                yield schedule
            if page.next_page_token is UNSET:
                return
            token = str(page.next_page_token)

    async def schedule(self, name: str) -> ScheduleView:
        return await self._transport.call("GET", path("v1", "schedules", name), ScheduleView)

    async def add_schedule(
        self, /, name: str, expression: str, kind: str, payload: Any = None, **fields: Any
    ) -> ScheduleView:
        """`fields`: timezone, queue, group, priority, max_retry, timeout_seconds, enabled, overlap, missed,
        missed_limit, jitter_seconds, start_at, end_at; see docs/howto/cron.md.
        """
        given = {"name": name, "expression": expression, "kind": kind, "payload": {} if payload is None else payload}
        body = _body(ScheduleRequest, given | fields)
        return await self._transport.call("POST", "/v1/schedules", ScheduleView, body=body)

    async def edit_schedule(self, /, name: str, **fields: Any) -> ScheduleView:
        """Change the given fields; the others stay as they are."""
        body = _body(ScheduleChange, fields)
        return await self._transport.call("PATCH", path("v1", "schedules", name), ScheduleView, body=body)

    async def remove_schedule(self, name: str) -> None:
        """Remove a schedule and its history; its jobs stay."""
        await self._transport.call("DELETE", path("v1", "schedules", name), type(None))

    async def pause_schedule(self, name: str) -> ScheduleView:
        return await self._transport.call("POST", path("v1", "schedules", name, "pause"), ScheduleView)

    async def resume_schedule(self, name: str) -> ScheduleView:
        """Instants while it was paused are not made up for."""
        return await self._transport.call("POST", path("v1", "schedules", name, "resume"), ScheduleView)

    async def run_schedule(self, name: str) -> str:
        """Insert a job of the schedule now; returns the id of the job."""
        return (await self._transport.call("POST", path("v1", "schedules", name, "run"), RunResponse)).job_id

    async def next_of_schedule(self, name: str, count: int = 5) -> NextTicksResponse:
        query = as_query({"count": count})
        return await self._transport.call("GET", path("v1", "schedules", name, "next"), NextTicksResponse, query=query)

    async def next_of_cron(self, expression: str, timezone: str = "UTC", count: int = 5) -> NextTicksResponse:
        """The meaning of a cron expression in words, and its next instants."""
        query = as_query({"expression": expression, "timezone": timezone, "count": count})
        return await self._transport.call("GET", "/v1/cron/next", NextTicksResponse, query=query)

    async def schedule_history(self, name: str, *, page_size: int = 50) -> AsyncIterator[TickView]:
        """The decided instants of a schedule, newest first."""
        token: str | None = None
        while True:
            query = as_query({"page_size": page_size, "page_token": token})
            at = path("v1", "schedules", name, "history")
            page = await self._transport.call("GET", at, HistoryPage, query=query)
            for past in page.items:
                yield past
            if page.next_page_token is UNSET:
                return
            token = str(page.next_page_token)


def _body(shape: type[msgspec.Struct], fields: dict[str, Any]) -> msgspec.Struct:
    """
    >>> _body(ScheduleChange, {"expresion": "@daily"})
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
