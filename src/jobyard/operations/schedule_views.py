"""Schedules as the API shows them: with the next instant, and until when a clock that was ahead silences them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from jobyard.api.schemas.schedules import ScheduleView, schedule_view
from jobyard.domain.schedule import Schedule
from jobyard.operations.schedules import AHEAD, Schedules
from jobyard.ports.schedule_store import Armed
from jobyard.ports.store import Store

PAGE = 1000


async def view_of(store: Store, schedule: Schedule) -> ScheduleView:
    now = await store.now()
    return schedule_view(schedule, now, await Schedules(store).ahead(schedule, now))


async def views_of(store: Store, found: Sequence[Schedule], after: str | None = None) -> list[ScheduleView]:
    """Views of a contiguous page of schedules, sorted by name, that begins after `after`."""
    if not found:
        return []
    now = await store.now()
    decided = {each.schedule: each.decided_until async for each in every_armed(store, after, found[-1].name)}
    ahead = {name: until for name, until in decided.items() if until > now + AHEAD}
    return [schedule_view(each, now, ahead.get(each.name)) for each in found]


async def every_armed(store: Store, after: str | None = None, last: str | None = None) -> AsyncIterator[Armed]:
    """All armed schedules by name, up to `last`."""
    while page := await store.armed(PAGE, after):
        for each in page:
            yield each
        after = page[-1].schedule
        if len(page) < PAGE or (last is not None and after >= last):
            return
