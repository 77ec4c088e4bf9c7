"""The overview: how the platform is doing, in a few numbers, its queues, and what a person should look at."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple
from urllib.parse import quote

from jobyard.api.convert import finished_per_minute
from jobyard.api.schemas.charts import (
    AttentionAction,
    AttentionItem,
    AttentionTarget,
    OldestWaiting,
    OverviewView,
    QueueRow,
    StatsView,
    WorkerCounts,
)
from jobyard.domain.histogram import percentile
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.text import counted
from jobyard.operations.chart_log import ChartRange
from jobyard.operations.charts import ChartHistory, Charts, rounded
from jobyard.operations.lost_workers import lost_workers
from jobyard.ports.admin_store import QueueAges, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

# However many pages ask, the store is read at most once in this time.
CACHE_SECONDS = 0.5
MAX_QUEUES = 200
MAX_ATTENTION = 5
SPARKS = 30
# A due job that waits longer than this although its queue has room and a worker is worth a look.
LONG_WAIT_SECONDS = 300.0


class OverviewSources(NamedTuple):
    """What the overview is made of, from about one moment."""

    now: Instant
    queues: Sequence[QueueInfo]
    ages: dict[str, QueueAges]
    workers: Sequence[WorkerInfo]
    lost: Sequence[WorkerInfo]
    minutes: ChartHistory  # the last five
    hour: ChartHistory
    own: frozenset[str] | None = None  # of a token that is restricted to these queues

    def of_queues(self, names: Sequence[str]) -> OverviewSources:
        """Only these queues, as a token that is restricted to them sees it."""
        own = frozenset(names)
        return self._replace(
            queues=[queue for queue in self.queues if queue.name in own],
            workers=[worker for worker in self.workers if not worker.queues or not own.isdisjoint(worker.queues)],
            lost=[worker for worker in self.lost if not own.isdisjoint(worker.queues)],
            own=own,
        )


class Overview:
    def __init__(self, store: Store, charts: Charts) -> None:
        self._store = store
        self._charts = charts
        self._lock = asyncio.Lock()
        self._cached: tuple[float, OverviewSources] | None = None

    async def facts(self) -> OverviewSources:
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= CACHE_SECONDS:
                self._cached = (time.monotonic(), await self._read())
            return self._cached[1]

    async def _read(self) -> OverviewSources:
        store, charts = self._store, self._charts
        now, queues, ages, workers = await asyncio.gather(store.now(), store.queues(), store.ages(), store.workers())
        minutes = await charts.history(ChartRange.FIVE_MINUTES, now)
        hour = await charts.history(ChartRange.HOUR, now)
        lost = await lost_workers(store, workers)
        return OverviewSources(now, queues, {each.queue: each for each in ages}, workers, lost, minutes, hour)

    async def view(self, queues: Sequence[str] = ()) -> OverviewView:
        """Of these queues; empty: of all."""
        facts = await self.facts()
        return overview_view(facts.of_queues(queues) if queues else facts)

    async def running(self, queue: str) -> int:
        """Number of running jobs of a queue, which need not be among those that the view lists."""
        return sum(each.running for each in (await self.facts()).queues if each.name == queue)

    async def stats(self, queues: Sequence[str] = ()) -> StatsView:
        facts = await self.facts()
        return stats_view(facts.of_queues(queues) if queues else facts)


def overview_view(facts: OverviewSources) -> OverviewView:
    stats = stats_view(facts)
    fields = {name: getattr(stats, name) for name in StatsView.__struct_fields__}
    rows = tuple(queue_row(facts, queue) for queue in facts.queues[:MAX_QUEUES])
    return OverviewView(**fields, queues=rows, queues_left_out=max(0, len(facts.queues) - MAX_QUEUES))


def stats_view(facts: OverviewSources) -> StatsView:
    names = frozenset(queue.name for queue in facts.queues)
    # Without a restriction also those of queues that the history does not tell apart, because there are too many.
    recent, hour = facts.minutes.total(facts.own), facts.hour.total(facts.own)
    return StatsView(
        at=rfc3339(facts.now),
        finished_per_minute=sum(
            rate for worker in facts.workers for name, rate in worker.finished_per_minute.items() if name in names
        ),
        waiting=sum(queue.waiting for queue in facts.queues),
        delayed=sum(queue.delayed for queue in facts.queues),
        running=sum(queue.running for queue in facts.queues),
        slots=sum(worker.concurrency for worker in facts.workers),
        failed=sum(queue.failed for queue in facts.queues),
        failed_last_hour=hour.failed,
        finished_last_hour=hour.finished,
        oldest_waiting=oldest_waiting(facts),
        wait_p50_seconds=rounded(percentile(recent.waits, 0.5)),
        wait_p95_seconds=rounded(percentile(recent.waits, 0.95)),
        wait_p99_seconds=rounded(percentile(recent.waits, 0.99)),
        run_p95_seconds=rounded(percentile(recent.runs, 0.95)),
        workers=WorkerCounts(
            live=len(facts.workers), quiet=sum(worker.quiet for worker in facts.workers), lost=len(facts.lost)
        ),
        attention=tuple(attention(facts)),
    )


# Queues


def queue_row(facts: OverviewSources, queue: QueueInfo) -> QueueRow:
    recent = facts.minutes.of_queue(queue.name)
    since = age_of(facts, queue)
    return QueueRow(
        name=queue.name,
        status=status_of(facts, queue),
        paused=queue.paused,
        waiting=queue.waiting,
        delayed=queue.delayed,
        running=queue.running,
        max_running=queue.settings.max_running,
        completed=queue.completed,
        failed=queue.failed,
        cancelled=queue.cancelled,
        finished_per_minute=finished_per_minute(queue.name, facts.workers),
        oldest_waiting_seconds=since,
        wait_p95_seconds=rounded(percentile(recent.waits, 0.95)),
        sparkline=sparkline(facts, queue.name),
    )


def status_of(
    facts: OverviewSources, queue: QueueInfo
) -> Literal["working", "at_limit", "paused", "no_worker", "idle"]:
    if queue.paused:
        return "paused"
    if (queue.waiting or queue.running) and not has_worker(facts, queue) and not queue.running:
        return "no_worker"
    if queue.settings.max_running is not None and queue.running >= queue.settings.max_running:
        return "at_limit"
    return "working" if queue.waiting or queue.running else "idle"


def has_worker(facts: OverviewSources, queue: QueueInfo) -> bool:
    return any(worker.takes(queue.name) for worker in facts.workers)


def age_of(facts: OverviewSources, queue: QueueInfo) -> float | None:
    """Since how many seconds its oldest due job waits."""
    ages = facts.ages.get(queue.name)
    since = None if ages is None else ages.waiting_since
    return None if since is None else max(0, facts.now - since) / 1000


def sparkline(facts: OverviewSources, queue: str) -> tuple[float | None, ...]:
    """Finished jobs of the last hour, in SPARKS parts; None where nothing is known."""
    window = facts.hour.window(facts.now)
    size = max(1, len(window) // SPARKS)
    parts = [window[start : start + size] for start in range(0, len(window), size)]
    return tuple(
        None
        if all(each is None or not each.knows(queue) for _, each in part)
        else sum(each.tallies[queue].finished for _, each in part if each and queue in each.tallies)
        for part in parts
    )


def oldest_waiting(facts: OverviewSources) -> OldestWaiting | None:
    aged = [(seconds, queue) for queue in facts.queues if (seconds := age_of(facts, queue)) is not None]
    if not aged:
        return None
    seconds, queue = max(aged, key=lambda each: each[0])
    reason, sentence = why_it_waits(facts, queue)
    since = rfc3339(facts.now - round(seconds * 1000))
    return OldestWaiting(queue=queue.name, since=since, seconds=seconds, reason=reason, sentence=sentence)


def why_it_waits(facts: OverviewSources, queue: QueueInfo) -> tuple[str, str]:
    """The code and the sentence, as `domain.explain` has them, for the whole queue."""
    match status_of(facts, queue):
        case "paused":
            return "queue_paused", f"Queue {queue.name} is paused."
        case "at_limit":
            return "queue_limit_reached", f"Queue {queue.name} is at its limit: {queue.running} jobs run."
    if not has_worker(facts, queue):
        return "no_worker", f"No live worker takes queue {queue.name}."
    busy = all(worker.running >= worker.concurrency for worker in facts.workers if worker.takes(queue.name))
    if busy:
        return "no_free_slot", f"All slots of the workers of queue {queue.name} are busy."
    if queue.settings.max_per_group is not None:
        return "group_limit_reached", f"Its group in queue {queue.name} may be at its limit, or paused."
    return "in_line", "It starts in its turn."


# What needs attention


def attention(facts: OverviewSources) -> list[AttentionItem]:
    """At most MAX_ATTENTION, worst first."""
    sources = (_queues_without_worker, _lost, _failures, _paused, _long_waits)
    found = [item for source in sources for item in islice(source(facts), MAX_ATTENTION)]
    found.sort(key=lambda item: item.level != "red")
    return found[:MAX_ATTENTION]


def _queues_without_worker(facts: OverviewSources) -> Iterator[AttentionItem]:
    stuck = [queue for queue in facts.queues if status_of(facts, queue) == "no_worker"]
    for queue in sorted(stuck, key=lambda queue: -queue.waiting):
        yield AttentionItem(
            code="no_worker",
            level="red",
            sentence=f"{counted(queue.waiting, 'job')} of queue {queue.name} cannot start: no live worker takes it.",
            command=f"jobyard worker --queue {shlex.quote(queue.name)}",
            target=AttentionTarget(page="queue", name=queue.name),
        )


def _lost(facts: OverviewSources) -> Iterator[AttentionItem]:
    if facts.lost:
        newest = max(facts.lost, key=lambda worker: worker.seen_at)
        yield AttentionItem(
            code="worker_lost",
            level="amber",
            sentence=f"{counted(len(facts.lost), 'worker')} lost within the last hour; the last one is {newest.id}.",
            command="jobyard running",
            target=AttentionTarget(page="workers", name=newest.id),
        )


def _failures(facts: OverviewSources) -> Iterator[AttentionItem]:
    for queue in facts.queues:
        tally = facts.hour.of_queue(queue.name)
        if tally.failed and tally.failed * 10 >= tally.finished:
            yield AttentionItem(
                code="many_failures",
                level="red",
                sentence=f"{tally.failed} of {counted(tally.finished, 'job')} of queue {queue.name} failed "
                "within the last hour.",
                command=f"jobyard dead list --queue {shlex.quote(queue.name)}",
                target=AttentionTarget(page="dead_letters", name=queue.name),
            )


def _paused(facts: OverviewSources) -> Iterator[AttentionItem]:
    for queue in facts.queues:
        if queue.paused and queue.waiting:
            yield AttentionItem(
                code="queue_paused",
                level="amber",
                sentence=f"Queue {queue.name} is paused, and {counted(queue.waiting, 'job')} wait.",
                command=f"jobyard queues resume {shlex.quote(queue.name)}",
                target=AttentionTarget(page="queue", name=queue.name),
                action=AttentionAction(
                    method="POST", path=f"/v1/queues/{quote(queue.name, safe='')}/resume", label="Resume"
                ),
            )


def _long_waits(facts: OverviewSources) -> Iterator[AttentionItem]:
    for queue in facts.queues:
        seconds = age_of(facts, queue)
        if seconds is not None and seconds > LONG_WAIT_SECONDS and status_of(facts, queue) == "working":
            yield AttentionItem(
                code="long_wait",
                level="amber",
                sentence=f"The oldest job of queue {queue.name} has waited for {round(seconds / 60)} minutes. "
                f"{why_it_waits(facts, queue)[1]}",
                command=f"jobyard groups list {shlex.quote(queue.name)}",
                target=AttentionTarget(page="queue", name=queue.name),
            )
