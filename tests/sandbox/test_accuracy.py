"""Accuracy of limits: memory to 1 MB, wall clock to 5 ms, output to the byte."""

from __future__ import annotations

import asyncio
import base64
import sys

import pytest
from tests.story.sizes import SOAK

from jobyard.executors.sandbox.result import run_result
from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.protocol import Limits, RunFinished, RunRequest, RunVerdict, Tier

MEGABYTE = 1 << 20
TOUCH = """\
import mmap, sys
area = mmap.mmap(-1, 1 << 30)
for number in range(1, 1025):
    for place in range((number - 1) << 20, number << 20, 4096):
        area[place] = 1
    print(number, flush=True)
    if number == int(sys.argv[1]):
        break
"""
PLAIN_KILL = """\
import os, signal, sys, time
source, seconds = sys.argv[1], float(sys.argv[2])
program = os.fork()
if program == 0:
    exec(source)
began = time.monotonic_ns()
time.sleep(seconds)
os.kill(program, signal.SIGKILL)
os.waitpid(program, 0)
print((time.monotonic_ns() - began) / 1e6 - seconds * 1000)
"""
ROUNDS = 16  # stops at the first that is exact


async def run(connection: DaemonConnection, source: str, limits: Limits, *args: str) -> RunFinished:
    answer = await connection.run(RunRequest(id=0, language="python", source=source.encode(), limits=limits, args=args))
    assert isinstance(answer, RunFinished), answer
    return answer


def needs_groups(seen: RunFinished) -> None:
    if seen.memory_source != "cgroup":
        assert seen.tier is not Tier.A
        pytest.skip(f"no cgroups in tier {seen.tier}: memory is limited by address space")


@pytest.mark.parametrize("limit", [32, 64, 128, 256])
async def test_memory_limit_is_exact_to_1_mb(limit: int, connection: DaemonConnection) -> None:
    seen = await run(connection, TOUCH, Limits(time_seconds=30, memory_mb=limit), "1000")
    needs_groups(seen)
    assert seen.verdict is RunVerdict.MEMORY_LIMIT
    assert seen.memory_peak_bytes is not None
    assert limit * MEGABYTE - MEGABYTE <= seen.memory_peak_bytes <= limit * MEGABYTE
    # The interpreter's own memory for a program counts, too: about 1 MB.
    assert limit - 4 <= int(seen.stdout.split()[-1]) < limit


async def test_reported_memory_matches_use(connection: DaemonConnection) -> None:
    nothing = await run(connection, "pass", Limits(time_seconds=30))
    needs_groups(nothing)
    fifty = await run(connection, TOUCH, Limits(time_seconds=30), "50")
    assert nothing.memory_peak_bytes is not None
    assert fifty.memory_peak_bytes is not None
    assert fifty.verdict is RunVerdict.OK
    assert abs(fifty.memory_peak_bytes - nothing.memory_peak_bytes - 50 * MEGABYTE) < 2 * MEGABYTE


async def lateness_of_a_plain_kill(source: str, seconds: float) -> float:
    """Milliseconds by which a program outside of the sandbox is ended too late."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PLAIN_KILL, source, str(seconds), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return float(output)


@pytest.mark.parametrize("seconds", [0.1, 0.3])
@pytest.mark.parametrize("source", ["import time\ntime.sleep(60)", "while True:\n    pass"], ids=["asleep", "busy"])
async def test_time_limit_is_exact_to_5_ms(source: str, seconds: float, connection: DaemonConnection) -> None:
    """Never early. In the soak, which has the machine for itself, also at best 5 ms later than a plain kill."""
    await connection.checked_state()  # the daemon tests languages after its start, which keeps it busy
    late: list[float] = []
    plain: list[float] = []
    for _ in range(ROUNDS):
        seen = await run(connection, source, Limits(time_seconds=seconds))
        assert seen.verdict is RunVerdict.TIME_LIMIT
        late.append(seen.execution_time_ms - seconds * 1000)
        assert late[-1] >= 0
        if late[-1] <= 5 or not SOAK:
            return
        plain.append(await lateness_of_a_plain_kill(source, seconds))
    assert min(late) <= min(plain) + 5, (late, plain)


async def test_cpu_limit(connection: DaemonConnection) -> None:
    seen = await run(connection, "while True:\n    pass", Limits(time_seconds=30, cpu_seconds=0.2))
    assert seen.verdict is RunVerdict.CPU_LIMIT
    assert seen.cpu_time_ms is not None
    assert seen.cpu_time_ms >= 200
    assert seen.cpu_time_ms < 400 or not SOAK  # how soon it is noticed depends on the machine


async def test_sleeping_takes_no_cpu_time(connection: DaemonConnection) -> None:
    seen = await run(connection, "import time\ntime.sleep(0.4)", Limits(time_seconds=30, cpu_seconds=0.2))
    assert seen.verdict is RunVerdict.OK
    assert seen.execution_time_ms >= 400
    assert seen.cpu_time_ms is None or seen.cpu_time_ms < 100


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("fd", [1, 2])
async def test_output_limit_is_exact_to_the_byte(count: int, fd: int, connection: DaemonConnection) -> None:
    source = (
        f"import os\ndata = bytes(i % 101 for i in range({count}))\nwhile data:\n    data = data[os.write({fd}, data):]"
    )
    for limit in (1000, 65_536):
        seen = await run(connection, source, Limits(time_seconds=30, output_bytes=limit))
        output = seen.stdout if fd == 1 else seen.stderr
        is_cut = seen.stdout_truncated if fd == 1 else seen.stderr_truncated
        assert output == bytes(i % 101 for i in range(min(count, limit)))
        assert is_cut == (count > limit)
        assert (seen.verdict is RunVerdict.OUTPUT_LIMIT) == (count > limit)


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
@pytest.mark.parametrize("limit", [1000, 1001, 1002, 1003])
async def test_output_is_truncated_at_a_character(character: str, limit: int, connection: DaemonConnection) -> None:
    """Written byte by byte and at once; output after the cut is dropped, and the text form is exact."""
    size = len(character.encode())
    for step in (1, 100_000):
        source = (
            f"import os\ndata = {character!r}.encode() * 600\n"
            f"while data:\n    data = data[os.write(1, data[:{step}]):]\n"
            "for _ in range(100):\n    os.write(1, b'later')"
        )
        seen = await run(connection, source, Limits(time_seconds=30, output_bytes=limit))
        output = run_result(seen)
        whole = (character * 600 + "later" * 100).encode()[:limit].decode(errors="ignore")
        assert output["stdout"] == whole
        assert "stdout_base64" not in output
        assert seen.stdout_truncated
        assert limit - size < len(seen.stdout) <= limit


async def test_binary_output_is_kept(connection: DaemonConnection) -> None:
    seen = await run(connection, "import os\nos.write(1, bytes(range(256)))", Limits(time_seconds=30))
    assert seen.stdout == bytes(range(256))
    assert base64.b64decode(run_result(seen)["stdout_base64"]) == bytes(range(256))
