"""Scenes on a separate file system, each run in a child process."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner
from tests.support import Events, eventually

from jobyard import Context, Jobyard, State
from jobyard.app.declarations import declarations_of
from jobyard.cli import cli
from jobyard.domain import events as e
from jobyard.errors import StoreFull, StoreReadOnly

gate = asyncio.Event()
events = Events()


def make(folder: Path) -> Jobyard:
    yard = Jobyard(f"sqlite:///{folder}/jobs.db", observer=events)

    @yard.job(name="work")
    async def work(ctx: Context, text: str = "") -> str:
        await gate.wait()
        return "r" * 30_000

    return yard


def fill(folder: Path) -> Path:
    """Fill the disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    if not file.write(b"x" * size):
                        break
                except OSError:
                    break
    return filler


async def full(folder: Path) -> None:
    """Inserts fail on a full disk without partial writes; a worker continues when there is space again."""
    yard = make(folder)
    work = declarations_of(yard).tasks["work"]
    async with yard:
        handles = [await work.enqueue("x" * 1000) for _ in range(4)]
        async with yard.worker(concurrency=2):
            await eventually(lambda: len(events.of(e.JobStarted)) == 2)
            filler = fill(folder)
            refused = 0
            for size in (200_000, 20_000, 1000):
                while True:
                    try:
                        handles.append(await work.enqueue("x" * size))
                    except StoreFull:
                        refused += 1
                        break
            assert refused == 3
            assert (await yard.queues())[0].running == 2
            assert (await yard.queues())[0].waiting == len(handles) - 2
            assert await yard.store.audit() == []
            gate.set()
            await eventually(lambda: [t for t in events.of(e.StoreFailed) if t.doing == "exchanging jobs"])
            assert all(isinstance(trouble.error, StoreFull) for trouble in events.of(e.StoreFailed))
            filler.unlink()
            for handle in handles:
                await handle.result(60)
        assert events.of(e.StoreRecovered)
        assert events.of(e.SettlementRefused) == []
        assert {(await handle.info()).attempt for handle in handles} == {1}
        assert await yard.store.audit() == []


async def no_room_to_begin(folder: Path) -> None:
    filler = fill(folder)
    yard = make(folder)
    try:
        await yard.open()
    except StoreFull:
        pass
    else:
        raise AssertionError("opened on a full disk")
    filler.unlink()
    async with yard:
        assert (await (await declarations_of(yard).tasks["work"].enqueue()).info()).state is State.PENDING
        assert await yard.store.audit() == []


async def file_size_limit(folder: Path) -> None:
    """A file size limit acts like a full disk."""
    import resource  # noqa: PLC0415

    yard = make(folder)
    work = declarations_of(yard).tasks["work"]
    gate.set()
    async with yard:
        kept = [await work.enqueue()]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        try:
            for _ in range(100):
                kept.append(await work.enqueue("x" * 50_000))  # noqa: PERF401
            raise AssertionError("never full")
        except StoreFull:
            pass
        assert (await yard.queues())[0].waiting == len(kept)
        assert await yard.store.audit() == []
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        async with yard.worker():
            for handle in kept:
                await handle.result(60)
        assert await yard.store.audit() == []


async def read_only(folder: Path) -> None:
    """A read-only folder, with and without an existing database."""
    for name in ("new.db", "jobs.db"):
        try:
            async with Jobyard(f"sqlite:///{folder}/{name}"):
                raise AssertionError(f"opened {name}")
        except StoreReadOnly as error:
            assert name in str(error), error
            assert "folder" in str(error), error
    assert os.listdir(folder) == ["jobs.db"]  # noqa: PTH208


async def doctor(folder: Path) -> None:
    """Doctor reports a full disk, even if the write-ahead log has reusable space."""
    yard = make(folder)
    url = f"sqlite:///{folder}/jobs.db"
    runner = CliRunner()

    def disk_findings() -> tuple[int, list[bool]]:
        answer = runner.invoke(cli, ["--store", url, "doctor", "--json"])
        found = json.loads(answer.stdout)["findings"]
        return answer.exit_code, ["cannot write" in finding["says"] for finding in found if finding["what"] == "disk"]

    async with yard:
        for _ in range(20):
            await declarations_of(yard).tasks["work"].enqueue("x" * 40_000)
        with closing(sqlite3.connect(folder / "jobs.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint")
        _, full = await asyncio.to_thread(disk_findings)
        assert full == [False]
        fill(folder)
        code, full = await asyncio.to_thread(disk_findings)
        assert (code, full) == (1, [True]), (code, full)


SCENES: dict[str, Callable[[Path], Awaitable[None]]] = {
    "full": full,
    "no_room_to_begin": no_room_to_begin,
    "file_size_limit": file_size_limit,
    "read_only": read_only,
    "doctor": doctor,
}


async def play(scene: str, folder: str) -> None:
    await SCENES[scene](Path(folder))


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2]))
    print("done")
