"""The sandbox client: concurrent runs over one connection, reconnecting, cancellation, rejection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.fake_daemon import FakeDaemon, daemon
from tests.support import PATIENCE_SECONDS, eventually

from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.sandbox.protocol import Fault, Limits, RunRequest, RunVerdict, SandboxState, Tier, encode_frame


def program(*lines: str, **given: Any) -> RunRequest:
    return RunRequest(id=0, language="python", source="\n".join(lines).encode(), **given)


@asynccontextmanager
async def connected(path: str, patience: float = PATIENCE_SECONDS) -> AsyncIterator[SandboxClient]:
    client = SandboxClient(path, connect_timeout_seconds=patience)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeDaemon]:
    async with daemon(tmp_path) as fake:
        yield fake


async def test_run_returns_the_result(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        finished = await client.run(program("out hello", "cat", stdin=b"input"))
        assert (finished.verdict, finished.exit_code, finished.stdout) == (RunVerdict.OK, 0, b"hello\ninput")
        assert (await client.ready_state()).tier is Tier.A


async def test_concurrent_runs_share_the_connection(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        runs = (client.run(program(f"sleep {(20 - n) / 1000}", f"out {n}")) for n in range(20))
        results = await asyncio.gather(*runs)
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(20)]
    assert fake.max_running == 4  # no more at once than it has slots


async def test_output_is_streamed(fake: FakeDaemon) -> None:
    heard: list[tuple[int, bytes]] = []

    def hear(fd: int, data: bytes) -> None:
        assert not run.done()
        heard.append((fd, data))

    async with connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("out a", "sleep 0.2", "err b", stream=True), hear))
        await run
    assert heard == [(1, b"a\n"), (2, b"b\n")]


async def test_platform_fault_raises(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        with pytest.raises(SandboxFault) as refused:
            await client.run(program("refuse SPAWN_FAILED"))
        assert (refused.value.fault, refused.value.message) == (Fault.SPAWN_FAILED, "as requested")


async def test_cancelled_run_is_killed_before_cancellation_propagates(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("sleep 30", limits=Limits(time_seconds=30))))
        await eventually(lambda: fake.running)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (fake.running, fake.cancelled) == (0, 1)
        assert (await client.run(program("out next"))).stdout == b"next\n"


async def test_lost_daemon_fails_pending_runs_and_later_runs_use_the_next_one(
    tmp_path: Path,
) -> None:
    async with daemon(tmp_path) as fake, connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("sleep 30", limits=Limits(time_seconds=30))))
        await eventually(lambda: fake.running)
        await fake.stop()
        with pytest.raises(SandboxFault) as lost:
            await run
        assert lost.value.fault is Fault.SUPERVISOR_LOST
        waiting = asyncio.ensure_future(client.run(program("out again")))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await fake.start()
        assert (await waiting).stdout == b"again\n"


async def test_missing_daemon_is_unavailable_after_the_timeout(tmp_path: Path) -> None:
    async with connected(str(tmp_path / "none.sock"), patience=0.2) as client:
        with pytest.raises(SandboxFault) as fault:
            await client.run(program("out x"))
        assert fault.value.fault is Fault.SANDBOX_UNAVAILABLE


async def test_daemon_without_a_tier_rejects_at_once(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path, state=SandboxState(reason="no namespaces here")) as fake,
        connected(fake.path) as client,
    ):
        with pytest.raises(SandboxFault) as fault:
            await client.run(program("out x"))
        assert (fault.value.fault, fault.value.message) == (Fault.SANDBOX_UNAVAILABLE, "no namespaces here")
        assert fake.runs == []


async def test_fetch_state(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        await client.ready_state()
        assert [language.name for language in (await client.fetch_state()).languages] == ["python", "c"]


@pytest.mark.parametrize("said", [b"\xff" * 40, encode_frame(SandboxState(version=99)), b"\x00\x00\x00\x02\xc1\xc1"])
async def test_incompatible_daemon_is_unavailable(tmp_path: Path, said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "sandbox.sock")
    async with connected(str(tmp_path / "sandbox.sock"), patience=0.3) as client:
        await eventually(lambda: client.reason.startswith("Incompatible"))
        with pytest.raises(SandboxFault) as fault:
            await client.run(program("out x"))
        assert fault.value.fault is Fault.SANDBOX_UNAVAILABLE
        assert client.reason.startswith("Incompatible")
    server.close()


async def test_late_responses_are_ignored(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("out a", "sleep 0.05", stream=True)))
        await eventually(lambda: fake.running)
        run.cancel()
        await asyncio.wait([run])
        await asyncio.sleep(0.1)
        assert client.state is not None
