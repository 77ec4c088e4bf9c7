"""The live view of organizations and their runners, for the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobyard.api.schemas.runners import RunnerOrgList
from jobyard.cli.render.output import echo

BAR_WIDTH = 30
# Off a terminal a line is printed this often.
LINE_SECONDS = 2.0
Show: TypeAlias = Callable[[RunnerOrgList, int, float], None]


@contextmanager
def live_organizations(console: Console, *, visible: bool) -> Iterator[Show]:
    """A function that shows the organizations: in place on a terminal, as lines elsewhere."""
    if not visible:
        yield lambda found, unfinished, seconds: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda found, unfinished, seconds: live.update(picture(found, unfinished, seconds), refresh=True)
    else:
        yield RunnerLinePrinter()


class RunnerLinePrinter:
    """A line from time to time, and at the end, if it differs from the last one."""

    def __init__(self) -> None:
        self._printed_at = -LINE_SECONDS
        self._last = ""

    def __call__(self, found: RunnerOrgList, unfinished: int, seconds: float) -> None:
        orgs = ", ".join(f"{org.name} {org.running}/{org.limit} (+{org.waiting})" for org in found.items)
        line = f"{orgs}  {unfinished} jobs left"
        is_due = seconds - self._printed_at >= LINE_SECONDS or not unfinished
        if is_due and line != self._last:
            self._printed_at, self._last = seconds, line
            echo(f"{seconds:5.1f} s  {line}")


def picture(found: RunnerOrgList, unfinished: int, seconds: float) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for heading, justify in (("organization", "left"), ("runners", "left"), ("", "right"), ("waiting", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]  # one of rich's words
    table.add_column("why")
    for org in found.items:
        limit = org.limit or 1
        reasons = ", ".join(f"{code} {count}" for code, count in sorted(org.reasons.items()))
        bar = ProgressBar(total=limit, completed=min(org.running, limit), width=BAR_WIDTH)
        table.add_row(escape(org.name), bar, f"{org.running}/{org.limit}", str(org.waiting), f"[dim]{reasons}[/dim]")
    parts: list[RenderableType] = [table, Text("")]
    if found.totals is not None:
        parts.append(Text(f"{found.totals.running} of {found.totals.max_total} runners. {found.totals.sentence}"))
    parts.append(Text(f"{unfinished} jobs left, {seconds:.0f} s", style="dim"))
    return Group(*parts)
