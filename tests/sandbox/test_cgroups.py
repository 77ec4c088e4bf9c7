"""Cgroups: version 1 on this machine, version 2 on plain files, and clone into a version 2 cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.sandbox.daemon import cgroup_discovery
from jobyard.sandbox.daemon.cgroups import Cgroup, CgroupManagerV1, CgroupV2

UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


@pytest.fixture
def found() -> Iterator[CgroupManagerV1]:
    groups, why = cgroup_discovery.find()
    if not isinstance(groups, CgroupManagerV1):
        if groups is not None:
            groups.close()
        pytest.skip(f"no version 1 cgroups here: {why}")
    yield groups
    groups.close()
    assert not [folder for folder in groups.folders if Path(folder).exists()]


def spend(group: Cgroup, program: str) -> int:
    """Run a program in the cgroup and return its exit code."""

    def enter() -> None:
        for descriptor in group.join_descriptors():
            os.write(descriptor, b"0")

    return subprocess.run(["/usr/bin/python3", "-c", program], check=False, preexec_fn=enter).returncode


def test_cgroup_v1_limits_and_counts(found: CgroupManagerV1) -> None:
    group = found.make(1)
    group.limit(32 << 20, 4)
    group.start()
    assert spend(group, "x = bytearray(16 << 20)") == 0
    assert group.cpu_ns() > 0
    assert (16 << 20) < (group.peak_bytes() or 0) <= 32 << 20
    assert group.oom_kills() == 0
    assert spend(group, "x = bytearray(64 << 20)") == -9
    assert group.oom_kills() == 1
    group.limit(128 << 20, 4)
    assert spend(group, "x = bytearray(64 << 20)") == 0
    assert group.is_empty()
    assert group.remove()


def test_recycled_cgroup_is_reset(found: CgroupManagerV1) -> None:
    first = found.make(1)
    first.limit(32 << 20, 4)
    spend(first, "x = bytearray(64 << 20)")
    if not found.recycle(first):
        first.remove()
        pytest.skip("too much memory stayed charged to it")
    again = found.make(2)
    assert again is first
    assert again.oom_kills() == 0
    assert (again.peak_bytes() or 0) < 8 << 20
    assert found.recycle(again)
    found.trim()
    assert found.make(3) is not first


def test_cgroups_of_dead_daemons_are_removed(found: CgroupManagerV1) -> None:
    bases = {str(Path(folder).parent) for folder in found.folders}
    left = [Path(base) / "jobyard-4194304-1" for base in bases]  # no process has this pid
    for folder in left:
        (folder / "7").mkdir(parents=True)
    cgroup_discovery.sweep(bases)
    assert not [folder for folder in left if folder.exists()]
    assert all(Path(folder).exists() for folder in found.folders)  # those of a live daemon stay


def test_cgroup_v2(tmp_path: Path) -> None:
    """Plain files stand in for those of the kernel."""
    files = {
        "cpu.stat": "usage_usec 500\nuser_usec 400\n",
        "memory.events": "low 0\noom 3\noom_kill 2\n",
        "memory.peak": "4096\n",
        "cgroup.events": "populated 0\nfrozen 0\n",
        "memory.max": "",
        "memory.swap.max": "",
        "pids.max": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    group = CgroupV2(str(tmp_path))
    group.limit(64 << 20, 8)
    assert [(tmp_path / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")] == [
        str(64 << 20),
        "0",
        "8",
    ]
    group.start()
    (tmp_path / "cpu.stat").write_text("usage_usec 900\n")
    assert (group.cpu_ns(), group.peak_bytes(), group.oom_kills(), group.is_empty()) == (400_000, 4096, 2, True)
    assert not group.reset()  # its peak cannot be reset
    (descriptor,) = group.join_descriptors()
    assert Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path


def test_clone_into_cgroup_v2() -> None:
    top = next((path for path in UNIFIED if (path / "cgroup.controllers").exists()), None)
    if top is None or not os.access(top, os.W_OK) or os.getuid() != 0:
        pytest.skip("cannot create a version 2 cgroup here")
    folder = top / f"jobyard-test-{os.getpid()}"
    folder.mkdir()
    program = """
import os, sys
from jobyard.sandbox.daemon.inside import kernel
pid, _ = kernel.clone(0, os.open(sys.argv[1], os.O_RDONLY))
if pid == 0:
    sys.stdout.write([line for line in open("/proc/self/cgroup") if line.startswith("0::")][0])
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
"""
    try:
        done = subprocess.run([sys.executable, "-c", program, str(folder)], check=True, capture_output=True, text=True)
        assert done.stdout == f"0::/{folder.name}\n"
    finally:
        folder.rmdir()
