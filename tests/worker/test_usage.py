"""The memory and processor time of a process tree."""

from __future__ import annotations

import os
import subprocess
import sys

from jobyard.worker.usage import Usage, descendants, usage

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
