"""Jobyard methods for schedules: the same as those of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Unpack

from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView, next_ticks_response, tick_view
from jobyard.domain import options
from jobyard.domain.schedule import Schedule
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS, ScheduleChanges, ScheduleOptions
from jobyard.operations.schedules import Schedules, view_of, views_of

if TYPE_CHECKING:
    from jobyard.app.declarations import Declarations
    from jobyard.ports.store import Store


class ScheduleVerbs:
    store: Store
    _declarations: Declarations

    async def schedules(
        self, *, queue: str | None = None, kind: str | None = None, page_size: int = 200
    ) -> AsyncIterator[ScheduleView]:
        """All schedules, by name."""
        schedules, after = Schedules(self.store), None
        while page := await schedules.page(options.check_integer("page_size", page_size, 1, 1000), after):
            for each in await views_of(self.store, page):
                if (queue is None or each.queue == queue) and (kind is None or each.kind == kind):
                    yield each
            after = page[-1].name

    async def schedule(self, name: str) -> ScheduleView:
        """Raises NotFound."""
        return await self._view(await Schedules(self.store).get(name))

    async def add_schedule(
        self, name: str, expression: str, kind: str, payload: Any = None, **given: Unpack[ScheduleOptions]
    ) -> ScheduleView:
        """The options are those of `@yard.cron`; see docs/howto/cron.md."""
        chosen: dict[str, Any] = {"name": name, "expression": expression, "kind": kind, "payload": payload, **given}
        chosen = {option: value for option, value in chosen.items() if value is not None}
        schedule = self._declarations.job_factory.new_schedule(chosen, SCHEDULE_OPTIONS)
        return await self._view(await Schedules(self.store).add(schedule))

    async def edit_schedule(self, name: str, **given: Unpack[ScheduleChanges]) -> ScheduleView:
        """Change the given options; the others stay as they are."""
        fields = options.check_options(SCHEDULE_OPTIONS, given, "schedule")
        factory = self._declarations.job_factory if fields.keys() & {"kind", "payload"} else None
        return await self._view(await Schedules(self.store).edit(name, fields, factory))

    async def remove_schedule(self, name: str) -> None:
        """Remove a schedule and its history; its jobs stay."""
        await Schedules(self.store).remove(name)

    async def pause_schedule(self, name: str) -> ScheduleView:
        """Fire no more until `resume_schedule`."""
        return await self._view(await Schedules(self.store).pause(name))

    async def resume_schedule(self, name: str) -> ScheduleView:
        """Instants while it was paused are not made up for."""
        return await self._view(await Schedules(self.store).resume(name))

    async def run_schedule(self, name: str) -> str:
        """Insert a job of the schedule now; returns the id of the job."""
        return await Schedules(self.store).run(name)

    async def next_of_schedule(self, name: str, count: int = 5) -> NextTicksResponse:
        """The meaning of its expression in words, and its next instants."""
        schedules = Schedules(self.store)
        found = await schedules.get(name)
        return next_ticks_response(found.expression, found.timezone, await schedules.next(name, count))

    async def schedule_history(self, name: str, *, page_size: int = 50) -> AsyncIterator[TickView]:
        """The decided instants of a schedule, newest first."""
        schedules, before = Schedules(self.store), None
        while page := await schedules.history(name, options.check_integer("page_size", page_size, 1, 1000), before):
            for each in page:
                yield tick_view(each)
            before = page[-1].first

    async def _view(self, schedule: Schedule) -> ScheduleView:
        return await view_of(self.store, schedule)
