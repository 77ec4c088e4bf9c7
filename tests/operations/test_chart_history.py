"""Chart history: what it keeps in memory is bounded, however many processes write and queues there are."""

from __future__ import annotations

import pytest
from tests.server.support import api_server

from jobyard.operations import charts
from jobyard.operations.chart_log import (
    OTHER_QUEUES,
    RESOLUTIONS,
    ChartEntry,
    ChartRange,
    QueueTally,
    append_entry,
    busiest,
)
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

RESOLUTION = RESOLUTIONS[ChartRange.FIVE_MINUTES]
PROCESSES, QUEUES, INTERVALS = 8, 50, 10


def tallies(process: int) -> dict[str, QueueTally]:
    """The busiest queue is the last one of each process."""
    return {
        f"queue-{process}-{number:03}": QueueTally(started=number + 1, finished=number + 1, failed=1, waits={3: 1})
        for number in range(QUEUES)
    }


async def written_store(clock: ManualClock) -> MemoryStore:
    store = MemoryStore(clock=clock)
    now = await store.now()
    for interval in range(INTERVALS):
        for process in range(PROCESSES):
            start = RESOLUTION.interval_of(now) - interval * RESOLUTION.interval_ms
            await append_entry(store, RESOLUTION, ChartEntry(start, tallies(process)), now)
    return store


async def test_rare_queues_are_added_up_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_TALLIES", 1000)
    monkeypatch.setattr(charts, "TALLIES_AFTER_MERGE", 600)
    clock = ManualClock()
    store = await written_store(clock)
    history = charts.ChartHistory(store, RESOLUTION)
    await history.refresh(await store.now())
    kept = [interval.tallies for interval in history.intervals.values()]
    assert sum(map(len, kept)) <= 1000
    finished = PROCESSES * sum(range(1, QUEUES + 1))
    assert [interval.total.finished for interval in history.intervals.values()] == [finished] * INTERVALS
    assert history.total().finished == INTERVALS * finished
    assert history.total().waits == {3: INTERVALS * PROCESSES * QUEUES}
    assert history.of_queue("queue-0-049").finished == INTERVALS * QUEUES
    first = min(history.intervals)
    rare, busy = (charts.values_of(history.intervals[first], (name,)) for name in ("queue-0-000", "queue-0-049"))
    assert (rare["finished"], busy["finished"]) == (None, QUEUES)
    clock.advance(RESOLUTION.kept_ms / 1000 + 60)
    await history.refresh(await store.now())
    assert (history.intervals, history.total().is_empty) == ({}, True)


async def test_within_the_bound_each_queue_is_kept_and_an_idle_one_has_zero_jobs() -> None:
    store = await written_store(ManualClock())
    history = charts.ChartHistory(store, RESOLUTION)
    await history.refresh(await store.now())
    assert history.of_queue("queue-0-000").finished == INTERVALS
    assert charts.values_of(next(iter(history.intervals.values())), ("idle",))["finished"] == 0


def test_an_entry_of_many_queues_holds_the_sum_of_the_others() -> None:
    found = busiest(tallies(0) | tallies(1) | {OTHER_QUEUES: QueueTally(finished=7)}, 10)
    assert len(found) == 11
    assert sum(tally.finished for tally in found.values()) == 2 * sum(range(1, QUEUES + 1)) + 7
    assert OTHER_QUEUES in found


async def test_the_overview_counts_the_jobs_of_all_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_TALLIES", 10)
    monkeypatch.setattr(charts, "TALLIES_AFTER_MERGE", 5)
    async with api_server() as server, server.client("viewer") as client:
        now = await server.store.now()
        resolution = RESOLUTIONS[ChartRange.HOUR]
        await append_entry(server.store, resolution, ChartEntry(resolution.interval_of(now), tallies(0)), now)
        assert (await client.get("/v1/overview")).json()["failed_last_hour"] == QUEUES
