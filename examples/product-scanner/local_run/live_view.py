"""What `jobyard running` prints, refreshed until all jobs have ended. Without a terminal: a line for each job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from jobyard import Filter, QueueInfo, State
from jobyard.app.process_manager import wait_up_to
from jobyard.cli.commands.running import is_shown, running_row, waiting
from jobyard.cli.render.output import age, bar, table, usage
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.operations.protocol import Operations

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 1.0
JOB_HEADINGS = ("~queue", "job", "~kind", "~worker", ">for", "~progress")
QUEUE_HEADINGS = ("~queue", "running", ">queued", ">delayed")


async def watch(
    operations: Operations, job_ids: Sequence[str], console: Console, stop: asyncio.Event, beat: Callable[[], None]
) -> None:
    """Show the jobs until all have ended, or until `stop`. `beat` is called at every refresh."""
    ended: set[str] = set()
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    with live or contextlib.nullcontext():
        while not stop.is_set():
            beat()
            jobs = (await operations.find(Filter(ids=tuple(job_ids)))).jobs
            news = [job for job in jobs if job.state.is_final and job.id not in ended]
            ended |= {job.id for job in news}
            if live is None:
                print_ended(console, news)
            else:
                queues, now = await operations.queues(), await operations.now()
                live.update(frame(jobs, queues, now, console.width), refresh=True)
            if len(ended) == len(job_ids):
                return
            await wait_up_to(PLAIN_SECONDS if live is None else REFRESH_SECONDS, stop)


def frame(jobs: Sequence[Job], queues: Sequence[QueueInfo], now: Instant, width: int) -> Group:
    ended = sum(job.state.is_final for job in jobs)
    done = Text.from_markup(f"[bold]{ended} of {len(jobs)} jobs have ended[/] [green]{bar(ended, len(jobs), 30)}[/]")
    running = sorted((job for job in jobs if job.state is State.RUNNING), key=lambda job: job.started_at or 0)
    rows = table(JOB_HEADINGS, (running_row(job, now, is_wide=False) for job in running), width)
    counts = (
        (escape(info.name), usage(info.running, info.settings.max_running), *waiting(info))
        for info in queues
        if is_shown(info)
    )
    return Group(done, Text(), rows, Text(), table(QUEUE_HEADINGS, counts, width))


def print_ended(console: Console, jobs: Iterable[Job]) -> None:
    for job in sorted(jobs, key=lambda job: job.finished_at or 0):
        took = "-" if job.finished_at is None else age(job.started_at, job.finished_at)
        workflow = job.payload_value().get("workflow_id", job.kind)
        console.print(f"{job.queue:<11} {workflow:<15} {job.state:<10} {took:>6}", markup=False, highlight=False)
