"""The connection to the daemon: many runs over it, lost and made anew, cancelled, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.fake_daemon import FakeDaemon, daemon
from tests.support import eventually

from jobyard.executors.sandbox.client import STARTING, SandboxClient, SandboxFault
from jobyard.sandbox.protocol import Fault, Limits, RunRequest, RunVerdict, SandboxState, Tier, encode_frame


def program(*lines: str, **given: Any) -> RunRequest:
    return RunRequest(id=0, language="python", source="\n".join(lines).encode(), **given)


@asynccontextmanager
async def connected(path: str, patience: float = 5.0) -> AsyncIterator[SandboxClient]:
    client = SandboxClient(path, patience_seconds=patience)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeDaemon]:
    async with daemon(tmp_path) as fake:
        yield fake


async def test_a_run_is_answered(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        finished = await client.run(program("out hello", "cat", stdin=b"input"))
        assert (finished.verdict, finished.exit_code, finished.stdout) == (RunVerdict.OK, 0, b"hello\ninput")
        assert (await client.known()).tier is Tier.A


async def test_many_runs_share_the_connection_and_each_gets_its_own_answer(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        runs = (client.run(program(f"sleep {(20 - n) / 1000}", f"out {n}")) for n in range(20))
        answers = await asyncio.gather(*runs)
    assert [answer.stdout for answer in answers] == [b"%d\n" % n for n in range(20)]
    assert fake.most == 4  # no more at once than it has slots


async def test_output_comes_while_it_runs(fake: FakeDaemon) -> None:
    heard: list[tuple[int, bytes]] = []
    async with connected(fake.path) as client:
        run = asyncio.ensure_future(
            client.run(program("out a", "sleep 0.2", "err b", stream=True), lambda fd, data: heard.append((fd, data)))
        )
        await eventually(lambda: heard)
        assert not run.done()
        await run
    assert heard == [(1, b"a\n"), (2, b"b\n")]


async def test_a_fault_of_the_platform_is_no_result(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        with pytest.raises(SandboxFault) as refused:
            await client.run(program("refuse SPAWN_FAILED"))
        assert (refused.value.fault, refused.value.message) == (Fault.SPAWN_FAILED, "as asked for")


async def test_a_cancelled_run_is_killed_before_the_caller_goes_on(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("sleep 30", limits=Limits(time_seconds=30))))
        await eventually(lambda: fake.running)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (fake.running, fake.cancelled) == (0, 1)
        assert (await client.run(program("out next"))).stdout == b"next\n"


async def test_whoever_waits_is_told_that_the_daemon_is_gone_and_the_next_run_goes_to_the_new_one(
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


async def test_a_daemon_that_never_comes_is_unavailable(tmp_path: Path) -> None:
    async with connected(str(tmp_path / "none.sock"), patience=0.2) as client:
        with pytest.raises(SandboxFault, match="SANDBOX_UNAVAILABLE: Nobody answers at its socket"):
            await client.run(program("out x"))


async def test_one_that_refuses_says_why_at_once(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path, state=SandboxState(reason="no namespaces here")) as fake,
        connected(fake.path) as client,
    ):
        with pytest.raises(SandboxFault, match="SANDBOX_UNAVAILABLE: no namespaces here"):
            await client.run(program("out x"))
        assert fake.runs == []


async def test_one_that_starts_is_waited_for(tmp_path: Path) -> None:
    async with daemon(tmp_path, state=SandboxState(reason=STARTING)) as fake, connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("out x")))
        await asyncio.sleep(0.1)
        assert fake.runs == []
        fake.tell(SandboxState(tier=Tier.B, slots=1))
        assert (await run).stdout == b"x\n"


async def test_it_can_be_asked_how_it_is(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        await client.known()
        assert [language.name for language in (await client.ask()).languages] == ["python", "c"]


@pytest.mark.parametrize("said", [b"\xff" * 40, encode_frame(SandboxState(version=99)), b"\x00\x00\x00\x02\xc1\xc1"])
async def test_a_stranger_at_the_socket_breaks_nothing(tmp_path: Path, said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "sandbox.sock")
    async with connected(str(tmp_path / "sandbox.sock"), patience=0.3) as client:
        with pytest.raises(SandboxFault, match="SANDBOX_UNAVAILABLE"):
            await client.run(program("out x"))
        assert "does not speak as this worker does" in client.reason
    server.close()


async def test_answers_nobody_waits_for_are_let_go(fake: FakeDaemon) -> None:
    async with connected(fake.path) as client:
        run = asyncio.ensure_future(client.run(program("out a", "sleep 0.05", stream=True)))
        await eventually(lambda: fake.running)
        run.cancel()
        await asyncio.wait([run])
        await asyncio.sleep(0.1)
        assert client.state is not None
