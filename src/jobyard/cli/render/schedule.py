"""Schedules as text: a row of a list, a page, an instant in its time zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console
from rich.markup import escape

from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView
from jobyard.cli.render.output import duration, name, print_markup, state
from jobyard.domain.cron import zone
from jobyard.domain.instant import Instant, instant
from jobyard.domain.schedule import MANAGED, Missed, Verdict
from jobyard.domain.text import visible

VERDICT_COLOURS = {Verdict.FIRED: "green", Verdict.LATE: "yellow", Verdict.MISSED: "red", Verdict.SKIPPED: "magenta"}


def row(schedule: ScheduleView, now: Instant) -> tuple[str, ...]:
    return (
        escape(schedule.name),
        escape(schedule.expression),
        escape(schedule.timezone),
        escape(schedule.kind),
        "-" if schedule.next_at is None else distance(instant(schedule.next_at), now),
        status(schedule),
    )


def status(schedule: ScheduleView) -> str:
    """Paused, declared in code or a file, or no longer declared."""
    found = [] if schedule.enabled else ["[yellow]paused[/]"]
    if schedule.silent_until is not None:
        found.append("[red]silent[/]")
    if not schedule.is_declared:
        found.append("[red]no longer declared[/]")
    elif schedule.origin != MANAGED:
        found.append(f"[dim]{escape(where(schedule.origin))}[/]")
    return ", ".join(found)


def where(origin: str) -> str:
    """
    >>> where("code:shop.jobs:yard"), where("file"), where("managed")
    ('in code', 'in jobyard.yaml', 'managed')
    """
    return "in jobyard.yaml" if origin == "file" else "in code" if origin.startswith("code:") else origin


def distance(at: Instant, now: Instant) -> str:
    """
    >>> distance(65_000, 0), distance(0, 1_000)
    ('in 1m05s', 'now')
    """
    return "now" if at <= now else f"in {duration((at - now) / 1000)}"


def clock(at: str, timezone: str) -> str:
    """
    >>> clock("2026-11-16T00:00:00.000Z", "Asia/Seoul"), clock("2026-11-16T00:00:00.000Z", "UTC")
    ('Mon 2026-11-16 09:00:00 +09:00', 'Mon 2026-11-16 00:00:00 UTC')
    """
    found = datetime.fromisoformat(at).astimezone(zone(timezone))
    offset = "UTC" if timezone == "UTC" else found.isoformat()[-6:]
    return f"{found:%a %Y-%m-%d %H:%M:%S} {offset}"


def instant_line(at: str, timezone: str, now: Instant) -> str:
    return f"{clock(at, timezone)}  {distance(instant(at), now)}"


def history_row(past: TickView) -> tuple[str, ...]:
    after = (instant(past.decided_at) - instant(past.at)) / 1000
    count = "" if past.count == 1 else f" {past.count} times"
    gone = "[dim]pruned[/]" if past.is_pruned else "-"
    return (
        past.at,
        f"[{VERDICT_COLOURS[past.verdict]}]{past.verdict}[/]{count}",
        f"after {duration(after)}",
        name(past.job_id),
        gone if past.state is None else state(past.state),
    )


def show_schedule(
    console: Console, schedule: ScheduleView, coming: NextTicksResponse, past: Sequence[TickView], now: Instant
) -> None:
    for line in (*_facts(schedule), *_coming(schedule, coming, now), *_past(past)):
        print_markup(console, line)


def _facts(schedule: ScheduleView) -> Iterator[str]:
    yield f"[bold]{visible(escape(schedule.name))}[/]  {status(schedule) or 'managed'}"
    yield _fact("fires", f"{escape(schedule.expression)}   {escape(schedule.in_words)} ({escape(schedule.timezone)})")
    yield _fact("kind", escape(schedule.kind))
    yield _fact("payload", escape(msgspec.json.encode(schedule.payload).decode()))
    yield _fact("queue", f"{escape(schedule.queue)}   group {name(schedule.group)}   priority {schedule.priority}")
    timeout = "none" if schedule.timeout_seconds is None else f"{schedule.timeout_seconds:g} s"
    yield _fact("retries", f"{schedule.max_retry}   timeout {timeout}")
    limit = f" up to {schedule.missed_limit}" if schedule.missed is Missed.ALL else ""
    yield _fact("overlap", f"{schedule.overlap}   missed {schedule.missed}{limit}")
    if schedule.jitter_seconds:
        yield _fact("jitter", f"up to {schedule.jitter_seconds:g} s")
    for word, at in (("from", schedule.start_at), ("until", schedule.end_at)):
        if at is not None:
            yield _fact(word, clock(at, schedule.timezone))
    if schedule.origin != MANAGED:
        yield _fact("declared", escape(schedule.origin) + ("" if schedule.is_declared else ", no longer"))
    if schedule.silent_until is not None:
        yield (
            f"  → does not fire until {schedule.silent_until}: the clock of the store was ahead. To continue from now: "
            f"jobyard cron resume {visible(escape(schedule.name))}"
        )
    if not schedule.is_declared:
        yield f"  → it still fires; to end it: jobyard cron remove {visible(escape(schedule.name))}"


def _coming(schedule: ScheduleView, coming: NextTicksResponse, now: Instant) -> Iterator[str]:
    yield "\n[bold]Next[/]"
    for at in coming.items:
        yield f"  {instant_line(at, schedule.timezone, now)}"
    if not coming.items:
        yield "  [dim]not due again[/]" if schedule.enabled else "  [dim]paused[/]"


def _past(past: Sequence[TickView]) -> Iterator[str]:
    yield "\n[bold]Last[/]"
    for each in past:
        yield "  " + "  ".join(history_row(each))
    if not past:
        yield "  [dim]not due yet[/]"


def _fact(what: str, value: str) -> str:
    return f"  {what:<10}{visible(value)}"
