"""A control group for each member, of version 1 or 2: entered by the program's process before it knows its program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

_LEFT_BYTES = 1 << 20  # more than this stayed charged: the next member gets a new group
_MOST_FREE = 32


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
    """What holds one member. Its files stay open: it is used again when its member is gone."""

    def joins(self) -> list[int]:
        """Descriptors to get in: files to write 0 to (version 1), or the group's folder (version 2)."""
        ...

    def limit(self, memory_bytes: int, processes: int) -> None: ...

    def forget_peak(self) -> None:
        """What the member itself took to come into being does not count."""
        ...

    def start(self) -> None:
        """Count the processor's time from here."""
        ...

    def cpu_ns(self) -> int: ...

    def peak_bytes(self) -> int | None: ...

    def oom_kills(self) -> int: ...

    def is_empty(self) -> bool:
        """Every process of it has been buried."""
        ...

    def is_clean(self) -> bool:
        """The next member would not pay for what this one left."""
        ...

    def remove(self) -> bool: ...


class CgroupManager(Protocol):
    """Where groups are made."""

    version: str

    @property
    def folders(self) -> list[str]:
        """What to remove when we are killed."""
        ...

    def make(self, serial: int) -> Cgroup: ...

    def keep(self, group: Cgroup) -> bool:
        """Take it back, empty as it is, to be used again; False when it is better removed."""
        ...

    def trim(self) -> None:
        """Remove what is free. It takes its time, as each removal does."""
        ...

    def close(self) -> None: ...


class _OpenFiles:
    """Files of one folder, opened once: each is read or written many times."""

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
    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        self._files = _OpenFiles()
        self._memory = self._processes = self._cpu_before = self._oom_before = 0
        memory = places["memory"]
        self._limits = [f"{memory}/memory.limit_in_bytes"]
        if Path(f"{memory}/memory.memsw.limit_in_bytes").exists():
            self._limits.append(f"{memory}/memory.memsw.limit_in_bytes")
        self._peak, self._oom, self._used = (
            f"{memory}/memory.{name}" for name in ("max_usage_in_bytes", "oom_control", "usage_in_bytes")
        )
        self._cpu = f"{places['cpuacct']}/cpuacct.usage"
        self._most, self._now = (f"{places['pids']}/pids.{name}" for name in ("max", "current"))
        try:
            for path in (*self._limits, self._peak, self._cpu, self._most):
                self._files.open(path, os.O_RDWR)
            for path in (self._oom, self._used, self._now):
                self._files.open(path, os.O_RDONLY)
        except OSError:
            self._files.close()
            raise

    def joins(self) -> list[int]:
        # A process of one thread that moves itself by this file does not wait for the kernel's lock on all of them,
        # which takes milliseconds.
        return [self._files.open(f"{path}/tasks", os.O_WRONLY) for path in set(self._places.values())]

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self._memory:
            # Memory with swap is never below memory alone: which of the two goes first depends on the way.
            for path in self._limits if memory_bytes < self._memory or not self._memory else self._limits[::-1]:
                self._files.write(path, memory_bytes)
            self._memory = memory_bytes
        if processes != self._processes:
            self._files.write(self._most, processes)
            self._processes = processes

    def forget_peak(self) -> None:
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
        return int(self._files.read(self._now)) == 0

    def is_clean(self) -> bool:
        self._oom_before += self.oom_kills()
        self.forget_peak()
        return int(self._files.read(self._used)) < _LEFT_BYTES

    def remove(self) -> bool:
        with contextlib.suppress(OSError):  # pages that it read first would keep it alive in the kernel, without a name
            write(f"{self._places['memory']}/memory.force_empty", 0)
        self._files.close()
        return _remove(self._places.values())


class CgroupV2:
    """Used once: before Linux 6.12 nothing forgets its peak."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = _OpenFiles()
        self._memory = self._processes = self._cpu_before = 0

    def joins(self) -> list[int]:
        return [self._files.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)]  # the program's process is born in it

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self._memory:
            write(f"{self._folder}/memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._folder}/memory.swap.max", 0)
            self._memory = memory_bytes
        if processes != self._processes:
            write(f"{self._folder}/pids.max", processes)
            self._processes = processes

    def forget_peak(self) -> None:
        """It would be forgotten for one open file only."""

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

    def is_clean(self) -> bool:
        return False

    def remove(self) -> bool:
        self._files.close()
        return _remove([self._folder])


def _remove(paths: Iterable[str]) -> bool:
    gone = True
    for path in set(paths):
        try:
            os.rmdir(path)  # noqa: PTH106 on the way of every member
        except FileNotFoundError:
            pass
        except OSError:
            gone = False
    return gone


class _FreeCgroups:
    """Groups that are free, to be used again."""

    def __init__(self) -> None:
        self._free: list[Cgroup] = []
        self._is_closed = False

    def _again(self) -> Cgroup | None:
        return self._free.pop() if self._free else None

    def keep(self, group: Cgroup) -> bool:
        if not self._is_closed and len(self._free) < _MOST_FREE and group.is_clean():
            self._free.append(group)
            return True
        return False

    def trim(self) -> None:
        free, self._free = self._free, []
        for group in free:
            group.remove()


class CgroupManagerV1(_FreeCgroups):
    version = "v1"

    def __init__(self, bases: dict[str, str], name: str) -> None:
        super().__init__()
        self._places = {controller: f"{base}/{name}" for controller, base in bases.items()}
        for path in set(self._places.values()):
            Path(path).mkdir(exist_ok=True)

    @property
    def folders(self) -> list[str]:
        return sorted(set(self._places.values()))

    def make(self, serial: int) -> Cgroup:
        if (free := self._again()) is not None:
            return free
        places = {controller: f"{path}/{serial}" for controller, path in self._places.items()}
        try:
            for path in set(places.values()):
                os.mkdir(path, 0o755)  # noqa: PTH102 on the way of every member
            return CgroupV1(places)
        except OSError:
            _remove(places.values())
            raise

    def close(self) -> None:
        self._is_closed = True
        self.trim()
        clear(self.folders)


class CgroupManagerV2(_FreeCgroups):
    version = "v2"

    def __init__(self, base: str, name: str) -> None:
        super().__init__()
        self._folder = f"{base}/{name}"
        Path(self._folder).mkdir(exist_ok=True)
        write(f"{self._folder}/cgroup.subtree_control", "+memory +pids +cpu")

    @property
    def folders(self) -> list[str]:
        return [self._folder]

    def make(self, serial: int) -> Cgroup:
        folder = f"{self._folder}/{serial}"
        os.mkdir(folder, 0o755)  # noqa: PTH102
        return CgroupV2(folder)

    def close(self) -> None:
        self._is_closed = True
        self.trim()
        clear(self.folders)


def clear(folders: Iterable[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    _end_processes(entry.path)
                    with contextlib.suppress(OSError):
                        Path(entry.path).rmdir()
            Path(folder).rmdir()


def _end_processes(folder: str) -> None:
    with contextlib.suppress(OSError):
        for pid in read(f"{folder}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), 9)
