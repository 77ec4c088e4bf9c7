"""A snapshot of `jobyard top`, as a frame that fits the terminal or as plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jobyard.cli.commands.queues import HEADINGS, queue_row
from jobyard.cli.render.output import age, bar, number, plain, table, usage
from jobyard.cli.snapshot import TopSnapshot
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import Job
from jobyard.domain.text import visible

SPARKS = "▁▂▃▄▅▆▇█"
# Rows of a section beside its items: its heading and the empty line above.
SECTION_ROWS = 2


def frame(
    snapshot: TopSnapshot, store_url: str, history: Sequence[float], console: Console, footer: Sequence[str] = ()
) -> RenderableType:
    left = console.height - 3 - len(snapshot.queues) - len(footer) - (1 if footer else 0)
    workers, left = _cut(len(snapshot.workers), left, share=0.25)
    groups, left = _cut(len(snapshot.groups), left, share=0.5)
    running, left = _cut(len(snapshot.running), left, share=1.0)
    parts: list[RenderableType] = [_title(snapshot, store_url, history), Text()]
    queues = [queue_row(queue, snapshot.workers) for queue in snapshot.queues]
    parts.append(table(HEADINGS, queues, console.width))
    if groups:
        rows = (
            (
                escape(f"{group.queue}/{group.name}"),
                number(group.waiting),
                usage(group.running, group.effective_limit),
                "[yellow]paused[/]" if group.paused else "[red]blocked[/]" if group.effective_limit == 0 else "",
            )
            # The busiest groups, in a stable order.
            for group in sorted(snapshot.groups[:groups], key=lambda group: (group.queue, group.name or ""))
        )
        parts += [
            Text(),
            table(("~group", ">waiting", "running", _more(len(snapshot.groups) - groups)), rows, console.width),
        ]
    if workers:
        rows_of_workers = (
            (
                escape(worker.id),
                usage(worker.running, worker.concurrency),
                number(worker.completed),
                age(worker.started_at, snapshot.at),
            )
            for worker in snapshot.workers[:workers]
        )
        parts += [Text(), table(("~worker", "running", ">completed", ">up"), rows_of_workers, console.width)]
    elif not snapshot.workers:
        parts += [Text(), Text("No live workers.", style="red")]
    if running:
        jobs = [_job_row(job, snapshot) for job in snapshot.running[:running]]
        parts += [Text(), table(("job", "~kind", ">for", "progress", "~"), jobs, console.width)]
    if footer:
        parts += [Text(), *(_footer(line) for line in footer)]
    return Group(*parts)


def _cut(wanted: int, left: int, share: float) -> tuple[int, int]:
    """How many rows a section gets, and how many remain."""
    rows = min(wanted, max(0, int(left * share) - SECTION_ROWS))
    return rows, left - (rows + SECTION_ROWS if rows else 0)


def _title(snapshot: TopSnapshot, store_url: str, history: Sequence[float]) -> Table:
    title = Table.grid(expand=True)
    title.add_column(overflow="ellipsis", no_wrap=True)
    title.add_column(justify="right", no_wrap=True)
    title.add_row(
        f"[bold]jobyard[/]  {visible(escape(store_url))}",
        f"[green]{sparkline(history)}[/] {snapshot.jobs_per_second:,.1f} jobs/s  {rfc3339(snapshot.at)[11:19]}Z",
    )
    return title


def _job_row(job: Job, snapshot: TopSnapshot) -> tuple[str, ...]:
    percent = 0.0 if job.progress is None else job.progress.percent
    message = "" if job.progress is None else escape(job.progress.message)
    shown = f"[cyan]{bar(percent, 100, 8)}[/]{percent:4.0f}%" if job.progress else "[dim]-[/]"
    return (job.id, escape(job.kind), age(job.started_at, snapshot.at), shown, message)


def _footer(line: str) -> Text:
    text = Text.from_markup(line, overflow="ellipsis")
    text.no_wrap = True
    return text


def _more(hidden: int) -> str:
    return f"({hidden} more)" if hidden > 0 else ""


def sparkline(values: Sequence[float]) -> str:
    """
    >>> sparkline([0, 1, 2, 4])
    '▁▂▄█'
    """
    most = max(values, default=0.0)
    return "".join(SPARKS[int(value / most * (len(SPARKS) - 1))] if most else SPARKS[0] for value in values)


def lines(snapshot: TopSnapshot) -> Iterator[str]:
    """One summary line, and one per queue: for logs and pipes."""
    at = rfc3339(snapshot.at)[:19] + "Z"
    busy = f"{len(snapshot.running)} running" if len(snapshot.running) < 100 else "100 or more running"
    yield f"{at} workers={len(snapshot.workers)} jobs_per_second={snapshot.jobs_per_second:.1f} {busy}"
    for queue in snapshot.queues:
        limit = queue.settings.max_running
        running = f"{queue.running}" if limit is None else f"{queue.running}/{limit}"
        yield plain(
            f"{at} {escape(queue.name)} waiting={queue.waiting} delayed={queue.delayed} running={running} "
            f"completed={queue.completed} failed={queue.failed}{' paused' if queue.paused else ''}"
        )
