"""The private servers themselves: they come back with their data, and do not outlive the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import Absent, PgBouncer, PostgresServer, Proxy, RedisServer, Server, absent, shared
from tests.servers.fixtures import wanted
from tests.servers.proxy import Mode
from tests.support import ROOT, eventually

pytestmark = pytest.mark.timeout(60)

PARENT = """
import sys, time
from tests.servers import *
postgres = PostgresServer(); postgres.start()
servers = [RedisServer(), postgres, PgBouncer(postgres.url)]
for server in servers:
    if not server.is_up: server.start()
print(*(server.pid for server in servers), *(server.folder for server in servers), flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def start_and_end(number: signal.Signals) -> list[str]:
    """A test run of its own, ended by the signal; what it said of its servers."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        words = parent.stdout.readline().split()
        parent.send_signal(number)
    return words


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_no_server_outlives_the_tests(number: signal.Signals, postgres_url: str, redis_url: str) -> None:
    words = await asyncio.to_thread(start_and_end, number)
    pids = [int(word) for word in words if word.isdigit()]
    assert len(pids) == 3
    await eventually(lambda: not any(is_running(pid) for pid in pids))
    if number is signal.SIGINT:
        assert not any(Path(word).exists() for word in words if word.startswith("/"))


@pytest.mark.parametrize("make", [RedisServer, PostgresServer])
async def test_a_killed_server_comes_back_on_its_port_with_its_data(
    make: Callable[[], Server], postgres_url: str, redis_url: str
) -> None:
    with make() as server:
        await write(server, "a")
        port = server.port
        server.kill()
        assert not server.answers()
        server.start()
        assert (server.port, await read(server)) == (port, "a")
        server.pause()
        assert not server.answers()
        server.resume()
        assert await read(server) == "a"


def test_a_server_that_cannot_start_shows_its_log(redis_url: str) -> None:
    with pytest.raises(RuntimeError, match=r"redis-server did not start(.|\n)*FATAL CONFIG FILE ERROR"):
        RedisServer(no_such_setting="1").__enter__()


async def test_the_proxy_passes_stalls_refuses_and_cuts(redis_url: str) -> None:
    with RedisServer() as server, Proxy(server.port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)

        async def ping(timeout: float = 60.0) -> bytes:
            writer.write(b"PING\r\n")
            return await asyncio.wait_for(reader.readline(), timeout)

        assert await ping() == b"+PONG\r\n"
        for mode in (Mode.STALL, Mode.HALF_OPEN):
            proxy.mode = mode
            with pytest.raises(TimeoutError):
                await ping(0.2)
            proxy.mode = Mode.PASS
            assert await reader.readline() == b"+PONG\r\n"
        proxy.latency_seconds = 0.2
        began = asyncio.get_running_loop().time()
        assert await ping() == b"+PONG\r\n"
        assert asyncio.get_running_loop().time() - began >= 0.2
        proxy.mode = Mode.REFUSE
        proxy.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        refused, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await refused.read() == b""
        other.close()
        await eventually(lambda: proxy.connections == 0)


async def test_the_proxy_forgets_connections_and_serves_new_ones(redis_url: str) -> None:
    with RedisServer() as server, Proxy(server.port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"PING\r\n")
        assert await reader.readline() == b"+PONG\r\n"
        proxy.abandon()
        writer.write(b"PING\r\n")
        newer, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        other.write(b"PING\r\n")
        assert await newer.readline() == b"+PONG\r\n"
        writer.close()
        await writer.wait_closed()
        other.write(b"PING\r\n")
        assert await newer.readline() == b"+PONG\r\n"
        # The server was not notified; it sees the end of the connections that looked whether it is up some time later.
        await eventually(lambda: server.connections() == 2)
        other.close()
        proxy.cut()
        await eventually(lambda: server.connections() == 0)


def test_a_missing_server_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise Absent("redis-server")

    monkeypatch.setattr(shared, "missing", {})
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install redis-server"):
        wanted(none)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="redis-server is not installed"):
        wanted(none)


def test_programs_are_found_off_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9.6", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "postgres").touch()
    monkeypatch.setattr(absent, "FOLDERS", (f"{tmp_path}/*/bin",))
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert absent.find("postgres") == tmp_path / "17" / "bin" / "postgres"
    with pytest.raises(Absent):
        absent.need("pgbouncer")


async def test_pgbouncer_hands_each_transaction_to_another_session(postgres_url: str, pgbouncer_url: str) -> None:
    if "JOBYARD_TEST_PGBOUNCER_URL" in os.environ:
        pytest.skip("PgBouncer of another owner")
    import asyncpg  # noqa: PLC0415

    with PgBouncer(postgres_url, sessions=1) as bouncer:
        one, two = [await asyncpg.connect(bouncer.url, statement_cache_size=0) for _ in range(2)]
        query = "SELECT pg_backend_pid()"
        assert await one.fetchval(query) == await two.fetchval(query)
        await one.close()
        await two.close()


async def write(server: Server, value: str) -> None:
    if isinstance(server, RedisServer):
        assert server.ask("SET", "key", value) == b"+OK\r\n"
    else:
        await _sql(server, f"CREATE TABLE kept AS SELECT '{value}' AS value")


async def read(server: Server) -> str:
    if isinstance(server, RedisServer):
        return server.ask("GET", "key").split(b"\r\n")[1].decode()
    return str(await _sql(server, "SELECT value FROM kept"))


async def _sql(server: Server, query: str) -> object:
    import asyncpg  # noqa: PLC0415

    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
