"""What tests of a scheduler look at."""

from __future__ import annotations

from tests.support import Watched

from jobyard.domain.job import Job, State
from jobyard.domain.schedule import Verdict
from jobyard.operations.schedules import Schedules
from jobyard.ports.admin_store import Action, Filter
from jobyard.testing.clock import START

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
FIRED, LATE, MISSED, SKIPPED = Verdict.FIRED, Verdict.LATE, Verdict.MISSED, Verdict.SKIPPED


async def past(schedules: Schedules, name: str = "s") -> list[tuple[int, Verdict, int]]:
    """What became of its instants, oldest first, as (seconds after the start, verdict, count)."""
    found = await schedules.history(name, 100)
    return [((row.at - START) // SECOND, row.verdict, row.count) for row in reversed(found)]


async def jobs(watched: Watched) -> list[Job]:
    return list((await watched.as_store().find(Filter(), 1000)).jobs)


async def finish_all(watched: Watched) -> None:
    waiting = [job.id for job in await jobs(watched) if job.state is State.PENDING]
    await watched.as_store().change(Action.CANCEL, waiting)
