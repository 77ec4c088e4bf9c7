"""What `docs/semantics.md` says of the disk: who waits for it, and who does not."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import eventually

from jobyard.domain.job import NewJob
from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement, judge
from jobyard.stores.sqlite import SqliteStore, syncer


class Disk:
    """A disk whose sync can be held up."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync(self, file: int) -> None:
        self.may_sync.wait()
        os.fsync(file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(syncer, "sync_file", disk.sync)
    return disk


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    yield store
    disk.may_sync.set()
    await store.close()


async def insert_slowly(store: SqliteStore, disk: Disk, job_id: str) -> asyncio.Task[object]:
    """An insert that was committed and waits for the disk."""
    disk.may_sync.clear()
    inserting: asyncio.Task[object] = asyncio.create_task(store.insert([NewJob(id=job_id, kind="k")]))
    await eventually(lambda: store.get(job_id))
    return inserting


async def test_an_insert_is_answered_only_after_the_sync(store: SqliteStore, disk: Disk) -> None:
    inserting = await insert_slowly(store, disk, "a")
    done, _ = await asyncio.wait([inserting], timeout=0.1)
    assert not done
    disk.may_sync.set()
    await inserting


async def test_it_is_seen_before_it_is_durable(store: SqliteStore, disk: Disk) -> None:
    inserting = await insert_slowly(store, disk, "a")
    assert not inserting.done()
    disk.may_sync.set()
    await inserting


async def test_a_claim_does_not_wait_for_the_disk(store: SqliteStore, disk: Disk) -> None:
    inserting = await insert_slowly(store, disk, "a")
    [lease] = (await store.exchange("w", [], [], 1, 15)).leases
    await store.extend("w", [lease.key], 15)
    assert not inserting.done()
    settling = asyncio.create_task(store.exchange("w", [Settlement(lease.key, judge(lease, Done()))], [], 0, 15))
    done, _ = await asyncio.wait([settling], timeout=0.1)
    assert not done
    disk.may_sync.set()
    await asyncio.gather(inserting, settling)
