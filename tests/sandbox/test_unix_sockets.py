"""Unix stream sockets among the processes of a program, where the operator allows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.sandbox.attack_runs import Setting
from tests.sandbox.machine_tiers import best_tier, offers
from tests.sandbox.wide_fixtures import in_own_loop

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon, private_daemon
from jobyard.sandbox.protocol import Limits, RunFinished, RunRequest, Tier

LIMITS = Limits(time_seconds=20.0, memory_mb=256)
OPTIONS = ("--unix-sockets",)
ECHO = """
import socket, threading
def serve():
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            connection.sendall(data.upper())
with socket.socket(socket.AF_UNIX) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(@ADDRESS@)
    listener.listen()
    threading.Thread(target=serve).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(@ADDRESS@)
        client.sendall(b"hello")
        print(client.recv(100).decode())
"""
ASYNCIO = """
import asyncio
async def serve(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()
async def ask(number):
    reader, writer = await asyncio.open_unix_connection("service")
    writer.write(f"hello {number}\\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().strip()
async def main():
    async with await asyncio.start_unix_server(serve, "service"):
        print(", ".join(await asyncio.gather(*map(ask, range(3)))))
asyncio.run(main())
"""
MANAGER = """
from multiprocessing import Manager, Process
def work(shared, number):
    shared[number] = number * number
if __name__ == "__main__":
    with Manager() as manager:
        shared = manager.dict()
        workers = [Process(target=work, args=(shared, number)) for number in range(3)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        print(sorted(shared.items()))
"""
PROGRAMS = {
    "path": (ECHO.replace("@ADDRESS@", "'service'"), b"HELLO\n"),
    "abstract name": (ECHO.replace("@ADDRESS@", "'\\0service'"), b"HELLO\n"),
    "asyncio": (ASYNCIO, b"HELLO 0, HELLO 1, HELLO 2\n"),
    "manager": (MANAGER, b"[(0, 0), (1, 1), (2, 4)]\n"),
}
TCP = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM)"
UDP = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)"


async def run(connection: DaemonConnection, source: str) -> RunFinished:
    request = RunRequest(id=0, language="python", source=source.encode(), limits=LIMITS)
    seen = await connection.run(request)
    assert isinstance(seen, RunFinished), seen
    return seen


@pytest.fixture(scope="module")
def open_daemon() -> Iterator[PrivateDaemon]:
    if best_tier() is not Tier.A:
        pytest.skip("Unix sockets need namespaces and a control group")
    with in_own_loop(private_daemon(slots=2, languages=["python"], options=OPTIONS)) as made:
        yield made


@pytest.fixture
async def sockets(open_daemon: PrivateDaemon) -> AsyncIterator[DaemonConnection]:
    async with connect(open_daemon.socket) as made:
        state = await made.ready()
        assert (state.unix_sockets, state.why_no_unix_sockets) == (True, "")
        yield made


@pytest.mark.parametrize("name", PROGRAMS)
async def test_sockets_work_where_they_are_allowed(sockets: DaemonConnection, name: str) -> None:
    source, stdout = PROGRAMS[name]
    seen = await run(sockets, source)
    assert (seen.stdout, seen.stderr) == (stdout, b"")


@pytest.mark.parametrize("source", [TCP, UDP], ids=["TCP", "UDP"])
async def test_network_sockets_are_never_allowed(sockets: DaemonConnection, source: str) -> None:
    assert b"PermissionError: [Errno 1]" in (await run(sockets, source)).stderr


@pytest.mark.parametrize("name", PROGRAMS)
async def test_sockets_are_refused_by_default(connection: DaemonConnection, name: str) -> None:
    assert not (await connection.fetch_state()).unix_sockets
    seen = await run(connection, PROGRAMS[name][0])
    assert seen.stdout == b""
    assert b"PermissionError: [Errno 1]" in seen.stderr or best_tier() is not Tier.A


@pytest.mark.parametrize(("tier", "why"), [(Tier.B, "no cgroup"), (Tier.C, "no network namespace")])
async def test_other_tiers_refuse_and_say_why(tier: Tier, why: str) -> None:
    if not offers(Setting(tier)):
        pytest.skip(f"tier {tier} is not supported here")
    async with (
        private_daemon(tier=tier, slots=1, languages=["python"], options=OPTIONS) as daemon,
        connect(daemon.socket) as made,
    ):
        state = await made.ready()
        if state.unix_sockets:
            pytest.skip("an ordinary user with a delegated control group")
        assert why in state.why_no_unix_sockets
        assert b"PermissionError: [Errno 1]" in (await run(made, PROGRAMS["abstract name"][0])).stderr
