"""Cgroups, version 1 and 2: one per box, joined by the program's process before it receives the program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

# With more memory still charged, a cgroup is not reused: the next program would pay for it.
_MAX_RESIDUE_BYTES = 1 << 20
_MAX_FREE = 32


def write(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _keyed(data: bytes, key: bytes) -> int:
    for line in data.splitlines():
        name, _, value = line.partition(b" ")
        if name == key:
            return int(value)
    return 0


class Cgroup(Protocol):
    """The cgroup of one box. Its files stay open, because it is reused after the box."""

    def join_descriptors(self) -> list[int]:
        """Descriptors to join it with: files to write 0 to (version 1), or its folder for clone3 (version 2)."""

    def limit(self, memory_bytes: int, processes: int) -> None: ...

    def reset_peak(self) -> None:
        """Reset the peak, so that the memory used to set up the box does not count."""

    def start(self) -> None:
        """Count CPU time from here."""

    def cpu_ns(self) -> int: ...

    def peak_bytes(self) -> int | None: ...

    def oom_kills(self) -> int: ...

    def is_empty(self) -> bool:
        """Whether all of its processes have been reaped."""

    def reset(self) -> bool:
        """Reset the counters. Return whether it can be reused without charging the next program."""

    def remove(self) -> bool: ...


class _OpenFiles:
    """Files of a cgroup, opened once because each is read or written many times."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def open(self, path: str, flags: int) -> int:
        found = self._open.get(path)
        if found is None:
            found = self._open[path] = os.open(path, flags | os.O_CLOEXEC)
        return found

    def read(self, path: str) -> bytes:
        return os.pread(self.open(path, os.O_RDONLY), 4096, 0)

    def write(self, path: str, value: int | str) -> None:
        os.pwrite(self.open(path, os.O_RDWR), str(value).encode(), 0)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class CgroupV1:
    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders
        self._files = _OpenFiles()
        self._memory = self._processes = self._cpu_before = self._oom_before = 0
        memory = folders["memory"]
        self._limits = [f"{memory}/memory.limit_in_bytes"]
        if Path(f"{memory}/memory.memsw.limit_in_bytes").exists():
            self._limits.append(f"{memory}/memory.memsw.limit_in_bytes")
        self._peak, self._oom, self._used = (
            f"{memory}/memory.{name}" for name in ("max_usage_in_bytes", "oom_control", "usage_in_bytes")
        )
        self._cpu = f"{folders['cpuacct']}/cpuacct.usage"
        self._max_processes, self._process_count = (f"{folders['pids']}/pids.{name}" for name in ("max", "current"))
        try:
            for path in (*self._limits, self._peak, self._cpu, self._max_processes):
                self._files.open(path, os.O_RDWR)
            for path in (self._oom, self._used, self._process_count):
                self._files.open(path, os.O_RDONLY)
        except OSError:
            self._files.close()
            raise

    def join_descriptors(self) -> list[int]:
        # A single-threaded process that moves itself through `tasks` avoids the kernel's lock on all threads, which
        # takes milliseconds.
        return [self._files.open(f"{path}/tasks", os.O_WRONLY) for path in set(self._folders.values())]

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self._memory:
            # The kernel rejects memory+swap below memory: lower memory first, raise memory+swap first.
            for path in self._limits if memory_bytes < self._memory or not self._memory else self._limits[::-1]:
                self._files.write(path, memory_bytes)
            self._memory = memory_bytes
        if processes != self._processes:
            self._files.write(self._max_processes, processes)
            self._processes = processes

    def reset_peak(self) -> None:
        self._files.write(self._peak, 0)

    def start(self) -> None:
        self._cpu_before = int(self._files.read(self._cpu))

    def cpu_ns(self) -> int:
        return int(self._files.read(self._cpu)) - self._cpu_before

    def peak_bytes(self) -> int | None:
        return int(self._files.read(self._peak))

    def oom_kills(self) -> int:
        return _keyed(self._files.read(self._oom), b"oom_kill") - self._oom_before

    def is_empty(self) -> bool:
        return int(self._files.read(self._process_count)) == 0

    def reset(self) -> bool:
        self._oom_before += self.oom_kills()
        self.reset_peak()
        return int(self._files.read(self._used)) < _MAX_RESIDUE_BYTES

    def remove(self) -> bool:
        with contextlib.suppress(OSError):  # cached pages would keep it alive in the kernel as a dying cgroup
            write(f"{self._folders['memory']}/memory.force_empty", 0)
        self._files.close()
        return _remove(self._folders.values())


class CgroupV2:
    """Never reused: before Linux 6.12 the peak cannot be reset."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = _OpenFiles()
        self._memory = self._processes = self._cpu_before = 0

    def join_descriptors(self) -> list[int]:
        return [self._files.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)]  # the program's process is cloned into it

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self._memory:
            write(f"{self._folder}/memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._folder}/memory.swap.max", 0)
            self._memory = memory_bytes
        if processes != self._processes:
            write(f"{self._folder}/pids.max", processes)
            self._processes = processes

    def reset_peak(self) -> None:
        """Do nothing: a reset would hold for one open file only."""

    def start(self) -> None:
        self._cpu_before = self._cpu()

    def _cpu(self) -> int:
        return _keyed(self._files.read(f"{self._folder}/cpu.stat"), b"usage_usec") * 1000

    def cpu_ns(self) -> int:
        return self._cpu() - self._cpu_before

    def peak_bytes(self) -> int | None:
        try:
            return int(self._files.read(f"{self._folder}/memory.peak"))
        except FileNotFoundError:  # Linux before 5.19
            return None

    def oom_kills(self) -> int:
        return _keyed(self._files.read(f"{self._folder}/memory.events"), b"oom_kill")

    def is_empty(self) -> bool:
        return _keyed(self._files.read(f"{self._folder}/cgroup.events"), b"populated") == 0

    def reset(self) -> bool:
        return False

    def remove(self) -> bool:
        self._files.close()
        return _remove([self._folder])


def _remove(paths: Iterable[str]) -> bool:
    gone = True
    for path in set(paths):
        try:
            os.rmdir(path)  # noqa: PTH106 on the path of every run
        except FileNotFoundError:
            pass
        except OSError:
            gone = False
    return gone


class CgroupManager:
    """Creates cgroups and keeps free ones for reuse. The reaper removes its folders if the daemon is killed."""

    version: str

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = sorted(set(folders))
        for path in self.folders:
            Path(path).mkdir(exist_ok=True)
        self._free: list[Cgroup] = []
        self._is_closed = False

    def make(self, serial: int) -> Cgroup:
        raise NotImplementedError

    def recycle(self, group: Cgroup) -> bool:
        """Take back an empty cgroup for reuse. Return False if it must be removed instead."""
        if not self._is_closed and len(self._free) < _MAX_FREE and group.reset():
            self._free.append(group)
            return True
        return False

    def trim(self) -> None:
        """Remove all free cgroups. Blocking: each removal takes milliseconds."""
        free, self._free = self._free, []
        for group in free:
            group.remove()

    def close(self) -> None:
        self._is_closed = True
        self.trim()
        remove_tree(self.folders)


class CgroupManagerV1(CgroupManager):
    version = "v1"

    def __init__(self, bases: dict[str, str], name: str) -> None:
        self._folders = {controller: f"{base}/{name}" for controller, base in bases.items()}
        super().__init__(self._folders.values())

    def make(self, serial: int) -> Cgroup:
        if self._free:
            return self._free.pop()
        folders = {controller: f"{path}/{serial}" for controller, path in self._folders.items()}
        try:
            for path in set(folders.values()):
                os.mkdir(path, 0o755)  # noqa: PTH102 on the path of every run
            return CgroupV1(folders)
        except OSError:
            _remove(folders.values())
            raise


class CgroupManagerV2(CgroupManager):
    version = "v2"

    def __init__(self, base: str, name: str) -> None:
        self._folder = f"{base}/{name}"
        super().__init__([self._folder])
        write(f"{self._folder}/cgroup.subtree_control", "+memory +pids +cpu")

    def make(self, serial: int) -> Cgroup:
        folder = f"{self._folder}/{serial}"
        os.mkdir(folder, 0o755)  # noqa: PTH102
        return CgroupV2(folder)


def remove_tree(folders: Iterable[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    _kill_processes(entry.path)
                    with contextlib.suppress(OSError):
                        Path(entry.path).rmdir()
            Path(folder).rmdir()


def _kill_processes(folder: str) -> None:
    with contextlib.suppress(OSError):
        for pid in read(f"{folder}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), 9)
