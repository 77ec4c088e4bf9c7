"""Removals by the cap on finished jobs are reported once, by whichever worker finds them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jobyard import Jobyard
from jobyard.domain.events import RetentionCapReached
from jobyard.domain.job import NewJob, QueueSettings
from jobyard.observability.logs import LogObserver
from jobyard.ports.admin_store import Action
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock
from jobyard.worker.retention_cap import REPORT_AGAIN_SECONDS, RetentionCapMonitor


async def end_and_prune(store: MemoryStore, count: int, first: int) -> None:
    ids = [f"job-{number}" for number in range(first, first + count)]
    await store.insert([NewJob(id=job_id, kind="k", queue="mail") for job_id in ids])
    await store.change(Action.CANCEL, ids)
    await store.prune()


async def test_removals_by_the_cap_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, events = ManualClock(), list[object]()
    store = MemoryStore(clock)
    await store.open()
    monitors = [RetentionCapMonitor(events.append) for _ in range(2)]  # of two workers

    async def look(*, is_last: bool = False) -> list[object]:
        events.clear()
        for monitor in monitors:
            await monitor.run_once(store, is_last=is_last)
        return list(events)

    await store.configure("mail", QueueSettings(keep_failed=1, keep_at_most=3))
    await end_and_prune(store, 4, first=0)
    assert await look() == [RetentionCapReached("mail", 1, 3)], "also what was removed before their first look"
    clock.advance(REPORT_AGAIN_SECONDS)
    await end_and_prune(store, 2, first=4)
    assert await look() == [RetentionCapReached("mail", 2, 3)]
    clock.advance(1)
    await end_and_prune(store, 2, first=6)
    assert await look() == [], "too soon after the last report"
    assert await look(is_last=True) == [RetentionCapReached("mail", 2, 3)]
    assert await look(is_last=True) == []
    with caplog.at_level(logging.WARNING, "jobyard.store"):
        LogObserver().observe(RetentionCapReached("mail", 2, 3))
    assert caplog.messages == [
        "queue mail holds more than keep_at_most = 3 finished jobs: 2 jobs removed before their time"
    ]
    await store.close()


async def test_a_queue_that_was_deleted_counts_from_zero() -> None:
    store, events = MemoryStore(ManualClock()), list[object]()
    await store.open()
    monitor = RetentionCapMonitor(events.append)
    for count, keep in ((6, 3), (2, 1)):
        await store.configure("mail", QueueSettings(keep_failed=1, keep_at_most=keep))
        await end_and_prune(store, count, first=0)
        await monitor.run_once(store, is_last=True)
        await store.change(Action.DELETE, [f"job-{number}" for number in range(count)])
        assert await store.remove_queue("mail")
    assert events == [RetentionCapReached("mail", 3, 3), RetentionCapReached("mail", 1, 1)]
    await store.close()


async def test_a_worker_of_a_moment_logs_what_its_burst_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path / 'jobs.db'}")
    yard.queue("q", keep_at_most=20, keep_completed=5)

    @yard.job(queue="q")
    def work(number: int) -> int:
        return number

    async with yard:
        jobs = [await work.enqueue(number) for number in range(200)]
        async with yard.worker(queues=["q"]):
            for job in jobs[-20:]:
                await job.wait(60)
            await yard.store.prune()
        [queue] = await yard.store.queues()
    told = [message for message in caplog.messages if "keep_at_most" in message]
    removed = sum(int(message.split(": ")[1].split()[0]) for message in told)
    assert 0 < removed == queue.removed_by_cap
