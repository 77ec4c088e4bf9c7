"""What `jobyard check` and `jobyard doctor` find out about schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from jobyard.app.cron import FILE, of_file, origin_of
from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.cli.render.output import duration
from jobyard.cli.render.schedule import where
from jobyard.cli.session import Session
from jobyard.domain.due import next_instant
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.schedule import Overlap, Schedule
from jobyard.errors import BadInput, BadOption, NotFound
from jobyard.operations.schedule_options import check_timing
from jobyard.operations.schedule_views import every_armed
from jobyard.operations.schedules import AHEAD, Schedules
from jobyard.ports.store import Finding, Level, Store

WHAT = "schedule"
# A scheduler that is at work decides an instant within moments.
OVERDUE = 60_000
# Of one kind of trouble so many are named.
NAMED = 5


async def declared_findings(session: Session, yard: Jobyard) -> AsyncIterator[Finding]:
    """Would what is declared be written, and could it run?"""
    shortest = session.configuration.scheduler.shortest_interval_seconds
    schedules, now = Schedules(yard.store, shortest), await yard.store.now()
    in_code = [(origin_of(yard.name), each) for each in declarations_of(yard).schedules.values()]
    in_file = [(FILE, each) for each in of_file(session.configuration.schedules, declarations_of(yard).job_factory)]
    for origin, schedule in (*in_code, *in_file):
        trouble = await _trouble(schedules, yard, origin, schedule, shortest, knows_kinds=session.app_name is not None)
        if origin == FILE and schedule.name in declarations_of(yard).schedules:
            trouble = "it is declared in code, too", "rename or remove one of the two"
        said = f"{schedule.name}, declared {where(origin)}"
        if trouble is not None:
            yield Finding(Level.FAIL, WHAT, f"{said}: {trouble[0]}", trouble[1])
            continue
        coming = next_instant(schedule, now)
        then = "never again" if coming is None else f"next {rfc3339(coming)[:19]}Z"
        yield Finding(Level.OK, WHAT, f"{said}: {schedule.expression} ({schedule.timezone}), {then}")


async def _trouble(
    schedules: Schedules, yard: Jobyard, origin: str, schedule: Schedule, shortest: float, *, knows_kinds: bool
) -> tuple[str, str] | None:
    try:
        check_timing(schedule, shortest)
        if knows_kinds:
            declarations_of(yard).handlers.get(schedule.kind).encode(msgspec.json.decode(schedule.payload))
    except BadOption as error:
        return str(error), "correct it where it is declared"
    except BadInput as error:
        return str(error), "correct its kind or payload, or declare the handler"
    try:
        present = await schedules.get(schedule.name)
    except NotFound:
        return None
    if present.origin == origin:
        return None
    return f"there is one of that name already, {where(present.origin)}", "rename or remove one of the two"


async def stored_findings(store: Store) -> AsyncIterator[Finding]:
    """Do they fire, and are they still wanted?"""
    found = await Schedules(store).all()
    if not found:
        return
    decided = {each.schedule: each.decided_until async for each in every_armed(store)}
    now = await store.now()
    awake = [each for each in found if each.enabled]
    gone = [each for each in found if not each.is_declared]
    silent = [each for each in awake if decided.get(each.name, 0) > now + AHEAD]
    late = [each for each in awake if each not in silent and _is_overdue(each, decided.get(each.name), now)]
    for each in gone[:NAMED]:
        says = f"{each.name} is no longer declared {where(each.origin)}, and goes on firing{_more(gone)}"
        yield Finding(Level.WARN, WHAT, says, f"jobyard cron remove {each.name}; or declare it again")
    for each in silent[:NAMED]:
        says = f"{each.name} is silent until {rfc3339(decided[each.name])}: the store's clock was ahead{_more(silent)}"
        yield Finding(Level.WARN, WHAT, says, f"jobyard cron resume {each.name} lets it go on from now")
    if late:
        since = min(next_instant(each, decided.get(each.name, 0)) or now for each in late)
        names = ", ".join(each.name for each in late[:NAMED]) + (", …" if len(late) > NAMED else "")
        says = f"{len(late)} overdue, for {duration((now - since) / 1000)}: {names}"
        cure = "start `jobyard scheduler` (or `jobyard up`); if one runs, its log says why: a full queue holds them up"
        yield Finding(Level.WARN, WHAT, says, cure)
    elif not gone and not silent:
        yield Finding(Level.OK, WHAT, f"{len(found)} in all, {len(found) - len(awake)} paused; none is overdue")


def _is_overdue(schedule: Schedule, decided_until: Instant | None, now: Instant) -> bool:
    """One whose tick waits for the end of an earlier job is not."""
    if decided_until is None or schedule.overlap is Overlap.QUEUE:
        return False
    due = next_instant(schedule, decided_until)
    return due is not None and due < now - OVERDUE


def _more(found: Sequence[Schedule]) -> str:
    return f" ({len(found) - NAMED} more)" if len(found) > NAMED else ""
