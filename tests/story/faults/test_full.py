"""No room is left: Redis at its memory limit, PostgreSQL on a full disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers import PostgresServer, RedisServer, Server
from tests.servers.folders import new_folder
from tests.story.faults.load import configure, doctor, drained, feed, verify
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size

from jobyard.errors import StoreError, StoreFull

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 180)]

JOBS = size(100, 2000)
DISK_MEGABYTES = 160
BIG = "x" * 100_000


class Room:
    """How a server runs out of room, and gets it back."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def take_away(self) -> None:
        if isinstance(self._server, RedisServer):
            used = next(
                line for line in self._server.ask("INFO", "memory").decode().splitlines() if "used_memory:" in line
            )
            limit = int(used.partition(":")[2]) + (256 << 10)
            assert self._server.ask("CONFIG", "SET", "maxmemory", str(limit)) == b"+OK\r\n"
        else:
            fill(self._filler)

    def give_back(self) -> None:
        if isinstance(self._server, RedisServer):
            assert self._server.ask("CONFIG", "SET", "maxmemory", "0") == b"+OK\r\n"
            return
        self._filler.unlink()
        if not self._server.is_up:
            # It ends itself when not even its log has room: restart it, as systemd would.
            self._server.start()

    @property
    def _filler(self) -> Path:
        assert isinstance(self._server, PostgresServer)
        return self._server.data.parent / "filler"


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12):
            try:
                while file.write(b"x" * block):
                    pass
            except OSError:
                continue


@pytest.fixture(params=["redis", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(engine: str) -> Iterator[Server]:
    """PostgreSQL on a small disk of its own."""
    if engine == "redis":
        with RedisServer() as redis:
            yield redis
        return
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    disk = new_folder("disk")
    options = f"size={DISK_MEGABYTES}m,mode=0777"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        with PostgresServer(data=disk / "data", max_wal_size="32MB", min_wal_size="32MB") as postgres:
            yield postgres
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        disk.rmdir()


async def test_a_full_server_refuses_and_goes_on_when_there_is_room(harness: Harness, server: Server, url: str) -> None:
    await configure(harness)
    workers = await harness.workers(2)
    acknowledged = await feed(harness, JOBS)
    room = Room(server)
    room.take_away()
    refusals = await _insert_until_refused(harness, acknowledged)
    assert any(isinstance(refusal, StoreFull) for refusal in refusals), refusals
    diagnosis = await doctor(url)
    assert diagnosis.exit_code == 1
    assert diagnosis.failures
    # The workers go on, or wait: either way nothing may get lost while there is no room.
    await asyncio.sleep(size(2.0, 10.0))
    room.give_back()
    harness.store_is_back()
    acknowledged += await feed(harness, JOBS)
    await drained(harness)
    await harness.stop(workers)
    await verify(harness, acknowledged)


async def _insert_until_refused(harness: Harness, acknowledged: list[str]) -> list[StoreError]:
    refusals: list[StoreError] = []

    async def refused_three_times() -> bool:
        try:
            acknowledged.append(await harness.enqueue("span", {"seconds": 0.01}, tags=(BIG[:100],), group="group-0"))
        except StoreError as error:
            refusals.append(error)
        return len(refusals) >= 3

    await harness.until(refused_three_times, "inserts are refused")
    return refusals
