"""Output: tables and bars on a terminal, tab-separated lines elsewhere. All text is printed through this module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jobyard.domain.instant import FOREVER, Instant, rfc3339
from jobyard.domain.job import Job, State
from jobyard.domain.text import counted, visible

STATE_COLOURS = {
    State.PENDING: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.TIMEOUT: "red",
    State.CANCELLED: "magenta",
}
FULL, EMPTY = "█", "░"
NO_BARS = {ord(FULL): None, ord(EMPTY): None}
# The first character of a heading sets the format of its column: aligned right, or may be shortened.
NUMBER, MAY_SHRINK = ">", "~"
MARKS = NUMBER + MAY_SHRINK
LEAST_WIDTH = 5
UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def echo(text: str, *, err: bool = False, file: Any = None) -> None:
    """Print plain text, of one line or more."""
    click.echo(visible(text, lines=True), err=err, file=file)


def print_markup(console: Console, markup: str) -> None:
    """Print rich markup, of one line or more; text from users must be escaped."""
    console.print(visible(markup, lines=True))


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Cells are rich markup; text from users must be escaped."""
    rows = list(rows)
    if not console.is_terminal:
        echo("\t".join(heading.lstrip(MARKS) for heading in headings))
        for row in rows:
            echo("\t".join(plain(cell) for cell in row))
    elif rows:
        console.print(table(headings, rows, console.width))
    else:
        print_markup(console, f"[dim]{escape(empty)}[/dim]")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Table:
    cells = [[Text.from_markup(visible(cell)) for cell in row] for row in rows]
    names = [heading.lstrip(MARKS) for heading in headings]
    natural = [max([len(name), *(row[place].cell_len for row in cells)]) for place, name in enumerate(names)]
    widths = fit(natural, [heading.startswith(MAY_SHRINK) for heading in headings], width - len(headings) + 1)
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for heading, name, space in zip(headings, names, widths, strict=True):
        justify: JustifyMethod = "right" if heading.startswith(NUMBER) else "left"
        made.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", width=space)
    for row in cells:
        made.add_row(*row)
    return made


def fit(natural: Sequence[int], may_shrink: Sequence[bool], width: int) -> list[int]:
    """Widths of columns: of those that may shrink, the widest shrink first.

    >>> fit([36, 20, 12, 5], [False, True, True, False], 60)
    [36, 9, 10, 5]
    """
    widths = list(natural)
    while sum(widths) > width:
        places = [place for place, may in enumerate(may_shrink) if may and widths[place] > LEAST_WIDTH]
        if not places:
            break
        widths[max(places, key=lambda place: (widths[place], -place))] -= 1
    return widths


def plain(markup: str) -> str:
    """Markup without colour and bars, for pipes and logs.

    >>> plain("[red]FAILED[/red]"), plain(usage(3, 10))
    ('FAILED', '3/10')
    """
    return Text.from_markup(visible(markup)).plain.translate(NO_BARS).strip()


def state(value: State) -> str:
    return f"[{STATE_COLOURS[value]}]{value}[/]"


def name(value: str | None) -> str:
    return "-" if value is None else escape(value)


def reason(job: Job) -> str | None:
    """Why the job ended; with the type of the exception if its last attempt raised one."""
    last = job.errors[-1] if job.errors else None
    return job.reason if last is None or last.message != job.reason else last.summary


def number(value: int) -> str:
    return f"{value:,}"


def bar(part: float, whole: float, width: int = 10) -> str:
    """
    >>> bar(3, 10)
    '███░░░░░░░'
    >>> bar(0, 0, 4), bar(9, 3, 4)
    ('░░░░', '████')
    """
    share = 0.0 if whole <= 0 else min(1.0, part / whole)
    filled = round(share * width)
    # Any running job is visible, and a bar with free room does not look full.
    filled = max(filled, 1) if share > 0 else 0
    filled = min(filled, width - 1) if share < 1 else width
    return FULL * filled + EMPTY * (width - filled)


def usage(running: int, limit: int | None, width: int = 10) -> str:
    """Running of limit, with a bar; only the number if there is no limit."""
    if limit is None:
        return f"{running:,}"
    colour = "red" if running >= limit else "green"
    return f"[{colour}]{bar(running, limit, width)}[/] {running:,}/{limit:,}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.25), duration(75), duration(7260), duration(200_000)
    ('0.2s', '1m15s', '2h01m', '2d07h')
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def relative(instant: Instant, now: Instant) -> str:
    """
    >>> relative(0, 400), relative(0, 61_000), relative(0, 7_200_000), relative(600_000, 0), relative(0, 86_400_000)
    ('just now', '1 minute ago', '2 hours ago', 'in 10 minutes', '1 day ago')
    """
    if instant >= FOREVER:
        return "never"
    seconds = abs(now - instant) // 1000
    if seconds < 1:
        return "just now"
    unit, name = next((size, word) for size, word in UNITS if seconds >= size)
    text = counted(seconds // unit, name)
    return f"{text} ago" if instant < now else f"in {text}"


def age(since: Instant | None, now: Instant) -> str:
    return "-" if since is None else duration((now - since) / 1000)


def when(instant: Instant | None, now: Instant) -> str:
    """An instant with its distance from now."""
    if instant is None:
        return "-"
    if instant >= FOREVER:
        return "never"
    distance = (now - instant) / 1000
    away = f"{duration(distance)} ago" if distance >= 0 else f"in {duration(-distance)}"
    return f"{rfc3339(instant)} ({away})"


def progress(job: Job, width: int = 10) -> str:
    if job.progress is None:
        return "[dim]-[/dim]"
    done = job.progress
    return f"[cyan]{bar(done.percent, 100, width)}[/] {done.percent:.0f}% {escape(done.message)}".rstrip()
