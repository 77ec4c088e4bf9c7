"""Crash recovery: whichever part of the log reached the disk, batches are complete and counts agree."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path

from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, Transition
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter
from jobyard.ports.schedule_store import Tick
from jobyard.ports.store import Store
from jobyard.stores.sqlite import SqliteStore

CUTS = 300 if os.environ.get("JOBYARD_SOAK") else 40
BATCHES, PER_BATCH = 30, 5
DONE = Transition(to=State.COMPLETED, result=b"null")


async def write_history(store: Store, log: Path) -> list[int]:
    """Write batches of inserts and ticks, and settle some; return the length of the log after each batch returned."""
    lengths = []
    await store.configure("q", QueueSettings(max_per_group=2, keep_completed=1000))
    await store.arm("nightly", 1, since=0)
    for batch in range(BATCHES):
        jobs = [NewJob(id=f"{batch:03}-{n}", kind="k", queue="q", group=f"g{n % 3}") for n in range(PER_BATCH)]
        await store.insert(jobs)
        due = NewJob(id=f"tick-{batch:03}", kind="k", queue="q")
        tick = Tick(schedule="nightly", revision=1, at=batch + 1, queue="q", verdict=Verdict.FIRED, job=due)
        await store.decide([tick])
        lengths.append(log.stat().st_size)
        leases = (await store.exchange("w", [], ["q"], 3, 15)).leases
        await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], ["q"], 0, 15)
    return lengths


async def test_a_truncated_log_leaves_complete_batches_and_correct_counts(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    log = Path(f"{path}-wal")
    store = SqliteStore(path)
    await store.open()
    lengths = await write_history(store, log)
    whole = log.read_bytes()
    shutil.copy(path, tmp_path / "copy.db")
    await store.close()
    dice = random.Random(7)
    for cut in sorted(dice.randrange(len(whole)) for _ in range(CUTS)):
        copy = tmp_path / f"cut-{cut}.db"
        shutil.copy(tmp_path / "copy.db", copy)
        # Garbage follows the cut, because a disk may have written any part of the rest.
        tail = bytes(dice.randrange(256) for _ in range(200))
        Path(f"{copy}-wal").write_bytes(whole[:cut] + tail)
        after = SqliteStore(copy)
        await after.open()
        try:
            assert await after.audit() == []
            found = [job.id async for job in Queries(after).walk(Filter())]
            # A tick and its job are stored together or not at all.
            recorded = [tick.job_id for tick in await after.ticks("nightly")]
            assert recorded == [id_ for id_ in found if id_.startswith("tick")]
            assert [armed.decided_until for armed in await after.armed()] in ([len(recorded)], [])
            ids = [id_ for id_ in found if not id_.startswith("tick")]
            batches = {id_[:3] for id_ in ids}
            assert len(ids) == PER_BATCH * len(batches), "a batch is incomplete"
            acknowledged = {f"{batch:03}" for batch, length in enumerate(lengths) if length <= cut}
            assert acknowledged <= batches, "an acknowledged batch is missing"
            assert {f"tick-{batch}" for batch in acknowledged} <= set(recorded), "an acknowledged tick is missing"
            await after.insert([NewJob(id="next", kind="k", queue="q")])
        finally:
            await after.close()
        with sqlite3.connect(copy) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
