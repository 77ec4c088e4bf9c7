"""The history of a workflow function as text: its operations in order, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET
from rich.console import Console
from rich.markup import escape

from jobyard.api.schemas.workflows import OperationView
from jobyard.cli.render.output import duration, name, print_markup, print_table, reason, state
from jobyard.domain.instant import Instant, instant
from jobyard.domain.job import Job, State

HEADINGS = ("", "~operation", "state", ">at", ">time", "~result")
MARKS = {"completed": "[green]✓[/]", "failed": "[red]✗[/]", "registered": "[dim]-[/]"}
MAX_RESULT = 60


def show_history(
    console: Console,
    job: Job,
    history: Sequence[OperationView],
    children: Mapping[str, State],
    waits: str,
    now: Instant,
) -> None:
    """`children`: the states of child jobs, by id, as far as they are known."""
    print_markup(console, f"[bold]{escape(job.kind)}[/] {escape(job.id)}  {state(job.state)}")
    if job.reason:
        print_markup(console, f"[red]{name(reason(job))}[/]")
    if waits:
        print_markup(console, escape(waits))
    print_table(console, HEADINGS, _rows(job, history, children, now), "It has recorded nothing yet.")


def _rows(
    job: Job, history: Sequence[OperationView], children: Mapping[str, State], now: Instant
) -> Iterator[tuple[str, ...]]:
    parts = {(each.key, each.part): each for each in history if each.part}
    begin = job.created_at
    for each in history:
        if each.kind and (not each.part or each.kind == "undo"):
            answer = parts.get((each.key, "received"), each)
            status = _status(each, parts, children, now)
            yield (
                MARKS.get(status, "[cyan]▶[/]"),
                escape(each.kind if each.kind == each.name else f"{each.kind} {each.name}"),
                escape(status),
                duration(max(0, instant(each.recorded_at) - begin) / 1000),
                _time(each),
                escape(_result(answer)),
            )


def _status(
    each: OperationView,
    parts: Mapping[tuple[str, str], OperationView],
    children: Mapping[str, State],
    now: Instant,
) -> str:
    match each.kind:
        case "compensate":
            return "registered"
        case "wait_for":
            return "completed" if (each.key, "received") in parts else "waiting"
        case "sleep":
            until = instant(each.recorded_at) + (each.seconds or 0.0) * 1000
            return "completed" if until <= now else "sleeping"
        case "map":
            ended = parts.get((each.key, "ended"))
            return "started" if ended is None else ended.status
        case "run":
            return str(children.get(each.child_id or "", each.status)).lower()
    return each.status


def _time(each: OperationView) -> str:
    """How long the last attempt of a step took."""
    if each.started_at is None:
        return ""
    return duration(max(0, instant(each.recorded_at) - instant(each.started_at)) / 1000)


def _result(each: OperationView) -> str:
    if each.error is not None:
        return f"{each.error.type}: {each.error.message}" if each.error.type else each.error.message
    if each.child_id is not None:
        return f"job {each.child_id}"
    if each.result is UNSET:
        return "" if each.seconds is None else f"{each.seconds:g} s"
    text = msgspec.json.encode(each.result).decode()
    return text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}…"
