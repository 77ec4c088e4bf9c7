"""Client methods for schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

from jobyard.api.schemas import schedules as schemas
from jobyard.client.address import path
from jobyard.client.requests import schedule_body
from jobyard.client.transport import Transport, as_query
from jobyard.domain.options import Option
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS, ScheduleChanges, ScheduleOptions


class ScheduleEndpoints:
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
        self, name: str, expression: str, kind: str, payload: Any = None, **given: Unpack[ScheduleOptions]
    ) -> schemas.ScheduleView:
        """The options are those of `@yard.cron`; see docs/howto/cron.md."""
        chosen: dict[str, Any] = {"name": name, "expression": expression, "kind": kind, "payload": payload, **given}
        return await self._add({option: value for option, value in chosen.items() if value is not None})

    async def edit_schedule(self, name: str, **given: Unpack[ScheduleChanges]) -> schemas.ScheduleView:
        """Change the given options; the others stay as they are."""
        return await self._edit(name, given)

    async def _add(
        self, given: Mapping[str, Any], table: Mapping[str, Option] = SCHEDULE_OPTIONS
    ) -> schemas.ScheduleView:
        body = schedule_body(given, table)
        return await self._transport.call("POST", "/v1/schedules", schemas.ScheduleView, body=body)

    async def _edit(
        self, name: str, given: Mapping[str, Any], table: Mapping[str, Option] = SCHEDULE_OPTIONS
    ) -> schemas.ScheduleView:
        at, body = path("v1", "schedules", name), schedule_body(given, table)
        return await self._transport.call("PATCH", at, schemas.ScheduleView, body=body)

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

    async def next_of_cron(self, expression: str, tz: str = "UTC", count: int = 5) -> schemas.NextTicksResponse:
        """The meaning of a cron expression in words, and its next instants."""
        query = as_query({"expression": expression, "timezone": tz, "count": count})
        return await self._transport.call("GET", "/v1/cron/next", schemas.NextTicksResponse, query=query)

    def schedule_history(self, name: str, *, page_size: int = 50) -> AsyncIterator[schemas.TickView]:
        """The decided instants of a schedule, newest first."""
        at = path("v1", "schedules", name, "history")
        return self._transport.walk(at, schemas.HistoryPage, {"page_size": page_size})
