"""Findings about schedules: declared ones for `jobyard check`, stored ones for `jobyard doctor`."""

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
from jobyard.operations.schedules import AHEAD, Schedules, every_armed
from jobyard.ports.store import Finding, Level, Store

CHECK = "schedule"
# A running scheduler decides an instant within moments.
OVERDUE = 60_000
# How many schedules with the same problem are named.
NAMED = 5


async def declared_findings(session: Session, yard: Jobyard) -> AsyncIterator[Finding]:
    """Whether each declared schedule is valid, and its name is free."""
    shortest = session.configuration.scheduler.shortest_interval_seconds
    schedules, now = Schedules(yard.store, shortest), await yard.store.now()
    in_code = [(origin_of(yard.name), each) for each in declarations_of(yard).schedules.values()]
    in_file = [(FILE, each) for each in of_file(session.configuration.schedules, declarations_of(yard).job_factory)]
    for origin, schedule in (*in_code, *in_file):
        problem = await _problem(schedules, yard, origin, schedule, shortest, knows_kinds=session.app_name is not None)
        if origin == FILE and schedule.name in declarations_of(yard).schedules:
            problem = "it is also declared in code", "rename or remove one of the two"
        name = f"{schedule.name}, declared {where(origin)}"
        if problem is not None:
            yield Finding(Level.FAIL, CHECK, f"{name}: {problem[0]}", problem[1])
            continue
        coming = next_instant(schedule, now)
        then = "never again" if coming is None else f"next {rfc3339(coming)[:19]}Z"
        yield Finding(Level.OK, CHECK, f"{name}: {schedule.expression} ({schedule.timezone}), {then}")


async def _problem(
    schedules: Schedules, yard: Jobyard, origin: str, schedule: Schedule, shortest: float, *, knows_kinds: bool
) -> tuple[str, str] | None:
    try:
        check_timing(schedule, shortest)
        if knows_kinds:
            declarations_of(yard).handlers.get(schedule.kind).encode(msgspec.json.decode(schedule.payload))
    except BadOption as error:
        return str(error), "fix it where it is declared"
    except BadInput as error:
        return str(error), "fix its kind or payload, or declare the handler"
    try:
        present = await schedules.get(schedule.name)
    except NotFound:
        return None
    if present.origin == origin:
        return None
    return f"a schedule with this name exists, {where(present.origin)}", "rename or remove one of the two"


async def stored_findings(store: Store) -> AsyncIterator[Finding]:
    """Whether the stored schedules fire, and are still declared."""
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
        message = f"{each.name} is no longer declared {where(each.origin)} but still fires{_more(gone)}"
        yield Finding(Level.WARN, CHECK, message, f"jobyard cron remove {each.name}, or declare it again")
    for each in silent[:NAMED]:
        until = rfc3339(decided[each.name])
        message = f"{each.name} does not fire until {until}: the clock of the store was ahead{_more(silent)}"
        yield Finding(Level.WARN, CHECK, message, f"jobyard cron resume {each.name} makes it continue from now")
    if late:
        since = min(next_instant(each, decided.get(each.name, 0)) or now for each in late)
        names = ", ".join(each.name for each in late[:NAMED]) + (", …" if len(late) > NAMED else "")
        message = f"{len(late)} overdue, for {duration((now - since) / 1000)}: {names}"
        advice = "start `jobyard scheduler` or `jobyard up`; if one runs, see its log: a full queue delays schedules"
        yield Finding(Level.WARN, CHECK, message, advice)
    elif not gone and not silent:
        yield Finding(Level.OK, CHECK, f"{len(found)} in all, {len(found) - len(awake)} paused, none overdue")


def _is_overdue(schedule: Schedule, decided_until: Instant | None, now: Instant) -> bool:
    """False for a schedule whose tick waits for an earlier job (overlap: queue)."""
    if decided_until is None or schedule.overlap is Overlap.QUEUE:
        return False
    due = next_instant(schedule, decided_until)
    return due is not None and due < now - OVERDUE


def _more(found: Sequence[Schedule]) -> str:
    return f" ({len(found) - NAMED} more)" if len(found) > NAMED else ""
