"""Builds are shared by concurrent requests and cancelled without waiters."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import eventually

from jobyard.sandbox.daemon.languages import LanguageDefinition, load
from jobyard.sandbox.daemon.program_run import CompletedRun
from jobyard.sandbox.daemon.toolchain import BuildResult, Toolchain
from jobyard.sandbox.protocol import File, Limits, RunRequest

SOURCE = RunRequest(id=1, language="c", source=b"int main(void) { return 0; }")


class Compiler:
    """Blocks until `go` is set; counts running compilations."""

    def __init__(self) -> None:
        self.begun = self.at_work = 0
        self.go = asyncio.Event()

    async def __call__(self, definition: LanguageDefinition, request: RunRequest, limits: Limits) -> CompletedRun:
        self.begun += 1
        self.at_work += 1
        try:
            await self.go.wait()
        finally:
            await asyncio.sleep(0.01)  # a killed compiler takes a moment to end
            self.at_work -= 1
        return CompletedRun(exit_code=0, signal=None, exit_reported=True, files={0: b"program"})


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


def building(compiler: Compiler, chain: Toolchain | None = None, run: RunRequest = SOURCE) -> asyncio.Task[BuildResult]:
    return asyncio.create_task((chain or Toolchain(compiler)).build(load(None)["c"], "12", run))


async def test_same_source_is_compiled_once(compiler: Compiler) -> None:
    chain = Toolchain(compiler)
    tasks = [building(compiler, chain) for _ in range(3)]
    await asyncio.sleep(0.01)
    compiler.go.set()
    built = await asyncio.gather(*tasks, building(compiler, chain))
    assert compiler.begun == 1
    assert [each.result.cached for each in built] == [False, True, True, True]
    other = RunRequest(id=1, language="c", source=SOURCE.source, files=(File(name="a.h", data=b""),))
    assert not (await building(compiler, chain, other)).result.cached


async def test_builds_are_not_shared_with_other_clients(compiler: Compiler) -> None:
    """A build from the cache, or the time of a fast one, reveals that another client compiled the same source."""
    chain = Toolchain(compiler)
    compiler.go.set()
    first, again, other = [
        await building(compiler, chain, RunRequest(id=1, language="c", source=SOURCE.source, scope=scope))
        for scope in ("one", "one", "other")
    ]
    assert [each.result.cached for each in (first, again, other)] == [False, True, False]
    assert again.result.time_ms != first.result.time_ms  # its own, not that of the first


async def test_last_waiter_cancels_the_build_and_waits_for_its_end(compiler: Compiler) -> None:
    task = building(compiler)
    await eventually(lambda: compiler.at_work == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert compiler.at_work == 0


async def test_other_waiters_keep_the_build(compiler: Compiler) -> None:
    chain = Toolchain(compiler)
    first, second = building(compiler, chain), building(compiler, chain)
    await eventually(lambda: compiler.at_work == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert compiler.at_work == 1
    compiler.go.set()
    assert (await second).program == b"program"


async def test_request_during_cancellation_starts_a_new_build(compiler: Compiler) -> None:
    chain = Toolchain(compiler)
    first = building(compiler, chain)
    await eventually(lambda: compiler.at_work == 1)
    first.cancel()
    await asyncio.sleep(0)
    second = building(compiler, chain)
    await asyncio.sleep(0.05)
    compiler.go.set()
    assert (await second).program == b"program"
    assert compiler.begun == 2
