"""Schedules from afar."""

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
        """By name."""
        words = {"queue": queue, "kind": kind, "page_size": page_size}
        token: str | None = None
        while True:
            query = as_query(words | {"page_token": token})
            page = await self._transport.call("GET", "/v1/schedules", SchedulePage, query=query)
            for schedule in page.items:
                yield schedule
            if page.next_page_token is UNSET:
                return
            token = str(page.next_page_token)

    async def schedule(self, name: str) -> ScheduleView:
        return await self._transport.call("GET", path("v1", "schedules", name), ScheduleView)

    async def add_schedule(
        self, /, name: str, expression: str, kind: str, payload: Any = None, **words: Any
    ) -> ScheduleView:
        """`words`: timezone, queue, group, priority, max_retry, timeout_seconds, enabled, overlap, missed,
        missed_limit, jitter_seconds, start_at, end_at; see docs/howto/cron.md.
        """
        given = {"name": name, "expression": expression, "kind": kind, "payload": {} if payload is None else payload}
        body = _fitting(ScheduleRequest, given | words)
        return await self._transport.call("POST", "/v1/schedules", ScheduleView, body=body)

    async def edit_schedule(self, /, name: str, **words: Any) -> ScheduleView:
        """What is not given stays as it is."""
        body = _fitting(ScheduleChange, words)
        return await self._transport.call("PATCH", path("v1", "schedules", name), ScheduleView, body=body)

    async def remove_schedule(self, name: str) -> None:
        """And its history; its jobs stay."""
        await self._transport.call("DELETE", path("v1", "schedules", name), type(None))

    async def pause_schedule(self, name: str) -> ScheduleView:
        return await self._transport.call("POST", path("v1", "schedules", name, "pause"), ScheduleView)

    async def resume_schedule(self, name: str) -> ScheduleView:
        """The instants of the time when it was paused are not made up for."""
        return await self._transport.call("POST", path("v1", "schedules", name, "resume"), ScheduleView)

    async def run_schedule(self, name: str) -> str:
        """Insert its job now, beside the clock; answers the job's id."""
        return (await self._transport.call("POST", path("v1", "schedules", name, "run"), RunResponse)).job_id

    async def next_of_schedule(self, name: str, count: int = 5) -> NextTicksResponse:
        query = as_query({"count": count})
        return await self._transport.call("GET", path("v1", "schedules", name, "next"), NextTicksResponse, query=query)

    async def next_of_cron(self, expression: str, timezone: str = "UTC", count: int = 5) -> NextTicksResponse:
        """What an expression means: in words, and its next instants."""
        query = as_query({"expression": expression, "timezone": timezone, "count": count})
        return await self._transport.call("GET", "/v1/cron/next", NextTicksResponse, query=query)

    async def schedule_history(self, name: str, *, page_size: int = 50) -> AsyncIterator[TickView]:
        """What became of its instants, newest first."""
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


def _fitting(shape: type[msgspec.Struct], words: dict[str, Any]) -> msgspec.Struct:
    """
    >>> _fitting(ScheduleChange, {"expresion": "@daily"})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: A schedule has no expresion. Did you mean "expression"?
    """
    for word in words:
        if word not in shape.__struct_fields__:
            raise BadOption(f"A schedule has no {word}.{did_you_mean(word, shape.__struct_fields__)}")
    try:
        return msgspec.convert(words, shape)
    except msgspec.ValidationError as error:
        raise BadOption(f"A schedule cannot be like that: {error}.") from error
