"""The memory and processor time of a process tree."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from jobyard.worker import usage as usage_module
from jobyard.worker.usage import Usage, UsageMeter, descendants, usage

CHILD = "import sys; kept = bytearray(64 << 20); sum(range(3_000_000)); print('ready', flush=True); sys.stdin.read()"


def test_children_count_with_their_parent_and_their_time_remains() -> None:
    before = usage()
    assert before.memory_bytes > 1 << 20
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert child.pid in set(descendants(os.getpid()))
        used = usage()
        assert used.memory_bytes - usage(child.pid).memory_bytes >= before.memory_bytes // 2
        assert usage(child.pid).memory_bytes >= 64 << 20
        assert used.cpu_seconds >= before.cpu_seconds + usage(child.pid).cpu_seconds - 0.05
        child.communicate()
    assert usage().cpu_seconds >= used.cpu_seconds - 0.05
    assert usage(child.pid) == Usage(), "a process that is gone"


def test_readings_within_a_second_repeat_the_last_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with a short lease sends heartbeats faster than the processor's clock can tell a share."""
    clock, busy = [0.0], [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(usage_module, "usage", lambda: Usage(1 << 20, busy[0]))
    meter = UsageMeter()
    shares = []
    for _ in range(6):
        clock[0] += 0.5
        busy[0] += 0.25
        shares.append(meter.read().cpu_percent)
    assert shares == [0.0, 50.0, 50.0, 50.0, 50.0, 50.0]
