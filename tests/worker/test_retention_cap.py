"""Removals by the cap on finished jobs are reported once, by the worker that finds them."""

from __future__ import annotations

import logging

import pytest

from jobyard.domain.events import RetentionCapReached
from jobyard.domain.job import NewJob, QueueSettings
from jobyard.observability.logs import LogObserver
from jobyard.ports.admin_store import Action
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock
from jobyard.worker.retention_cap import RetentionCapMonitor


async def end_and_prune(store: MemoryStore, count: int, first: int) -> None:
    ids = [f"job-{number}" for number in range(first, first + count)]
    await store.insert([NewJob(id=job_id, kind="k", queue="mail") for job_id in ids])
    await store.change(Action.CANCEL, ids)
    await store.prune()


async def test_removals_by_the_cap_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store, events = MemoryStore(ManualClock()), list[object]()
    await store.open()
    monitor = RetentionCapMonitor(events.append)
    await store.configure("mail", QueueSettings(keep_failed=1, keep_at_most=3))
    await end_and_prune(store, 4, first=0)
    await monitor.run_once(store)
    assert events == [], "what was removed before this worker started was reported then"
    await end_and_prune(store, 2, first=4)
    await monitor.run_once(store)
    await monitor.run_once(store)
    assert events == [RetentionCapReached("mail", 2, 3)]
    with caplog.at_level(logging.WARNING, "jobyard.store"):
        LogObserver().observe(RetentionCapReached("mail", 2, 3))
    assert caplog.messages == [
        "queue mail holds more than keep_at_most = 3 finished jobs: 2 jobs removed before their time"
    ]
    await store.close()
