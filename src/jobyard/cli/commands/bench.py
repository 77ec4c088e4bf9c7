"""`jobyard bench`: measure insert, drain and latency on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import click
import msgspec
from rich.progress import Progress

from jobyard.app.jobyard import Jobyard
from jobyard.cli.commands.job_actions import progress_bar
from jobyard.cli.require_store import require_tables
from jobyard.cli.session import Session, async_command
from jobyard.config.store_factory import make_store
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.executors.python.context import Context
from jobyard.operations.commands import Commands
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store

QUEUE = "jobyard-bench"
KIND = "jobyard-bench-nothing"
GROUPS = 100
BATCH = 1000
ROUNDS = 200
# Time limits per part, so that the whole takes less than 20 s on a slow disk.
INSERT_SECONDS, DRAIN_SECONDS, LATENCY_SECONDS = 4.0, 10.0, 3.0


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    jobs: int
    groups: int
    inserted_per_second: float
    drained_per_second: float
    latency_p50_ms: float
    latency_p99_ms: float


@click.command()
@click.option("--jobs", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True, help="Number of jobs.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    help="The concurrency of the worker.",
)
@click.option(
    "--this-store", is_flag=True, help=f"Measure the chosen store, in a queue {QUEUE}.  [default: a temporary file]"
)
@async_command
async def bench(session: Session, jobs: int, concurrency: int, this_store: bool) -> None:
    """Measure bulk insert, drain and idle latency.

    Takes less than 20 seconds. No-op jobs in 100 groups, with full durability, on a temporary SQLite file; with
    --this-store, on the chosen store, whose other queues are not touched.

    \b
    Example:
      jobyard bench
      jobyard --store sqlite:////var/lib/app/jobs.db bench --this-store
    """
    async with _bench_store(session, this_store) as store, Jobyard(store=store) as yard:
        with progress_bar() as progress:
            speed = await measure(yard, jobs, concurrency, progress)
        await _clean_up(yard)
    if session.as_json:
        session.print_json(speed)
        return
    session.echo(f"store    {speed.store}")
    session.echo(f"insert   {speed.inserted_per_second:>10,.0f} jobs/s   ({speed.jobs:,} jobs, {BATCH} at a time)")
    session.echo(f"drain    {speed.drained_per_second:>10,.0f} jobs/s   (one worker, {speed.groups} groups)")
    session.echo(
        f"latency  {speed.latency_p50_ms:>10.2f} ms p50   {speed.latency_p99_ms:.2f} ms p99   (enqueue to start, idle)"
    )


@contextlib.asynccontextmanager
async def _bench_store(session: Session, this_store: bool) -> AsyncIterator[Store]:
    if this_store:
        store = session.store()
        await require_tables(store)
        yield store
    else:
        with tempfile.TemporaryDirectory(prefix="jobyard-bench-") as folder:
            yield make_store(f"sqlite:///{Path(folder) / 'bench.db'}")


async def measure(yard: Jobyard, jobs: int, concurrency: int, progress: Progress) -> BenchResult:
    started: asyncio.Queue[float] = asyncio.Queue()
    is_counting = False

    @yard.job(name=KIND, queue=QUEUE)
    async def nothing(ctx: Context) -> None:
        if is_counting:
            started.put_nowait(time.perf_counter())

    inserted, insert_seconds = await _insert(yard.store, jobs, progress)
    drained, drain_seconds = await _drain(yard, inserted, concurrency, progress)
    await _clean_up(yard)
    is_counting = True
    waits: list[float] = []
    task = progress.add_task("latency", total=ROUNDS)
    deadline = time.perf_counter() + LATENCY_SECONDS
    async with yard.worker(concurrency=2, queues=[QUEUE]):
        while len(waits) < ROUNDS and time.perf_counter() < deadline:
            before = time.perf_counter()
            await nothing.enqueue()
            waits.append((await started.get() - before) * 1000)
            progress.advance(task)
    waits.sort()
    return BenchResult(
        store=yard.store.url,
        jobs=inserted,
        groups=GROUPS,
        inserted_per_second=inserted / insert_seconds,
        drained_per_second=drained / drain_seconds,
        latency_p50_ms=statistics.median(waits),
        latency_p99_ms=waits[int(len(waits) * 0.99)],
    )


async def _insert(store: Store, jobs: int, progress: Progress) -> tuple[int, float]:
    task = progress.add_task("insert", total=jobs)
    start = time.perf_counter()
    done = 0
    while done < jobs and time.perf_counter() - start < INSERT_SECONDS:
        size = min(BATCH, jobs - done)
        batch = [NewJob(id=new_id(), kind=KIND, queue=QUEUE, group=f"group-{n % GROUPS}") for n in range(size)]
        await store.insert(batch)
        done += size
        progress.update(task, completed=done)
    return done, time.perf_counter() - start


async def _drain(yard: Jobyard, jobs: int, concurrency: int, progress: Progress) -> tuple[int, float]:
    task = progress.add_task("drain", total=jobs)
    start = time.perf_counter()
    async with yard.worker(concurrency=concurrency, queues=[QUEUE], shutdown_timeout=5) as worker:
        while time.perf_counter() - start < DRAIN_SECONDS and worker.info().completed < jobs:
            await asyncio.sleep(0.02)
            progress.update(task, completed=worker.info().completed)
        return worker.info().completed, time.perf_counter() - start


async def _clean_up(yard: Jobyard) -> None:
    async for _ in Commands(yard.store).change_matching(Action.DELETE, Filter(queue=QUEUE)):
        pass
