"""Control groups, version 1, 2 or both at once: each member has a group from the moment it is made.

Nothing is assumed: which controllers can be used, and how, is found by making a group and writing to it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_NEEDED = ("memory", "pids", "cpuacct", "cpu")
_PREFIX = "jobyard-"


class Group(Protocol):
    """What holds one member."""

    def joins(self) -> list[int]:
        """Descriptors to get in: files to write 0 to (version 1), or the group's folder (version 2).

        The caller closes them.
        """
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

    def remove(self) -> bool:
        """False while a process of it has not been buried."""
        ...


class Groups(Protocol):
    """Where groups are made."""

    version: str

    @property
    def folders(self) -> list[str]:
        """What to remove when we are killed."""
        ...

    def make(self, serial: int) -> Group: ...

    def close(self) -> None: ...


def _write(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
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


@dataclass
class _Base:
    folder: str
    memory: int = 0
    processes: int = 0
    started_cpu: int = 0


@dataclass
class GroupV1(_Base):
    places: dict[str, str] = field(default_factory=dict)

    def joins(self) -> list[int]:
        # A process of one thread that moves itself by this file does not wait for the kernel's lock on all of them,
        # which takes milliseconds.
        return [os.open(f"{path}/tasks", os.O_WRONLY | os.O_CLOEXEC) for path in set(self.places.values())]

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self.memory:
            self._limit_memory(memory_bytes)
        if processes != self.processes:
            _write(f"{self.places['pids']}/pids.max", processes)
            self.processes = processes

    def _limit_memory(self, value: int) -> None:
        # Memory with swap is never below memory alone: which of the two goes first depends on the way.
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if value > self.memory > 0:
            names.reverse()
        for name in names:
            path = f"{self.places['memory']}/{name}"
            if name == "memory.limit_in_bytes" or Path(path).exists():
                _write(path, value)
        self.memory = value

    def start(self) -> None:
        self.started_cpu = self._cpu()

    def forget_peak(self) -> None:
        _write(f"{self.places['memory']}/memory.max_usage_in_bytes", 0)

    def _cpu(self) -> int:
        return int(_read(f"{self.places['cpuacct']}/cpuacct.usage"))

    def cpu_ns(self) -> int:
        return self._cpu() - self.started_cpu

    def peak_bytes(self) -> int | None:
        return int(_read(f"{self.places['memory']}/memory.max_usage_in_bytes"))

    def oom_kills(self) -> int:
        return _keyed(_read(f"{self.places['memory']}/memory.oom_control"), b"oom_kill")

    def remove(self) -> bool:
        return _remove(self.places.values())


@dataclass
class GroupV2(_Base):
    def forget_peak(self) -> None:
        with contextlib.suppress(OSError):  # Linux 6.12 and later: for whoever holds the same descriptor; not worth one
            _write(f"{self.folder}/memory.peak", "reset")

    def joins(self) -> list[int]:
        return [
            os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ]  # the program's process is born in it

    def limit(self, memory_bytes: int, processes: int) -> None:
        if memory_bytes != self.memory:
            _write(f"{self.folder}/memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):
                _write(f"{self.folder}/memory.swap.max", 0)
            self.memory = memory_bytes
        if processes != self.processes:
            _write(f"{self.folder}/pids.max", processes)
            self.processes = processes

    def start(self) -> None:
        self.started_cpu = self._cpu()

    def _cpu(self) -> int:
        return _keyed(_read(f"{self.folder}/cpu.stat"), b"usage_usec") * 1000

    def cpu_ns(self) -> int:
        return self._cpu() - self.started_cpu

    def peak_bytes(self) -> int | None:
        try:
            return int(_read(f"{self.folder}/memory.peak"))
        except FileNotFoundError:  # Linux before 5.19
            return None

    def oom_kills(self) -> int:
        return _keyed(_read(f"{self.folder}/memory.events"), b"oom_kill")

    def remove(self) -> bool:
        return _remove([self.folder])


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


class GroupsV1:
    version = "v1"

    def __init__(self, bases: dict[str, str], name: str) -> None:
        self._places = {controller: f"{base}/{name}" for controller, base in bases.items()}
        for path in set(self._places.values()):
            Path(path).mkdir(exist_ok=True)

    @property
    def folders(self) -> list[str]:
        return sorted(set(self._places.values()))

    def make(self, serial: int) -> Group:
        places = {controller: f"{path}/{serial}" for controller, path in self._places.items()}
        for path in set(places.values()):
            os.mkdir(path, 0o755)  # noqa: PTH102 on the way of every member
        return GroupV1(folder="", places=places)

    def close(self) -> None:
        _clear(self.folders)


class GroupsV2:
    version = "v2"

    def __init__(self, base: str, name: str) -> None:
        self._folder = f"{base}/{name}"
        Path(self._folder).mkdir(exist_ok=True)
        _write(f"{self._folder}/cgroup.subtree_control", "+memory +pids +cpu")

    @property
    def folders(self) -> list[str]:
        return [self._folder]

    def make(self, serial: int) -> Group:
        folder = f"{self._folder}/{serial}"
        os.mkdir(folder, 0o755)  # noqa: PTH102
        return GroupV2(folder=folder)

    def close(self) -> None:
        _clear(self.folders)


def _clear(folders: Iterable[str]) -> None:
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
        for pid in _read(f"{folder}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), 9)


# Finding them


def _own_places(pid: str = "self") -> dict[str, str]:
    """Controller to our own group's path in it; "" is version 2."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    """(root, where, kind, options) of each control group file system."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            where = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
            found.append((fields[3], where, kind, set(options.split(","))))
    return found


def _folder(root: str, where: str, own: str) -> str | None:
    """Our own group in the file system: a container sees only what lies below its root."""
    if root == "/":
        return (where + own).rstrip("/")
    if own == root or own.startswith(root + "/"):
        return (where + own[len(root) :]).rstrip("/")
    return where if own == "/" else None


def _bases() -> tuple[dict[str, str], str | None]:
    own = _own_places()
    first: dict[str, str] = {}
    second: str | None = None
    for root, where, kind, options in _mounts():
        if kind == "cgroup2":
            second = _folder(root, where, own.get("", "/"))
            continue
        for controller in _NEEDED:
            if controller in options and controller in own and (place := _folder(root, where, own[controller])):
                first[controller] = place
    return first, second


def find() -> tuple[Groups | None, str]:
    """The groups that can be used here, or None and why not."""
    first, second = _bases()
    name = f"{_PREFIX}{os.getpid()}-{_started(os.getpid())}"
    reasons = []
    if second is not None:
        try:
            return _find_v2(second, name), ""
        except OSError as error:
            reasons.append(f"version 2: {error.strerror or error} ({error.filename or second})")
    missing = [controller for controller in _NEEDED if controller not in first]
    if missing:
        reasons.append(f"version 1: no {', '.join(missing)}")
        return None, "; ".join(reasons)
    try:
        sweep(first.values())
        groups = GroupsV1(first, name)
        _try(groups)
    except OSError as error:
        reasons.append(f"version 1: {error.strerror or error} ({error.filename or ''})")
        return None, "; ".join(reasons)
    return groups, ""


def _find_v2(base: str, name: str) -> Groups:
    offered = set(_read(f"{base}/cgroup.controllers").decode().split())
    missing = {"memory", "pids", "cpu"} - offered
    if missing:
        raise OSError(0, f"no {', '.join(sorted(missing))}", base)
    sweep([base])
    enabled = set(_read(f"{base}/cgroup.subtree_control").decode().split())
    if not {"memory", "pids", "cpu"} <= enabled:
        _step_aside(base)
        _write(f"{base}/cgroup.subtree_control", "+memory +pids +cpu")
    groups = GroupsV2(base, name)
    _try(groups)
    return groups


def _step_aside(base: str) -> None:
    """A group of version 2 that has children with limits holds no processes itself: go into a child."""
    leaf = f"{base}/supervisor"
    Path(leaf).mkdir(exist_ok=True)
    for pid in _read(f"{base}/cgroup.procs").split():
        _write(f"{leaf}/cgroup.procs", pid.decode())


def _try(groups: Groups) -> None:
    group = groups.make(0)
    try:
        group.limit(64 << 20, 16)
        for descriptor in group.joins():
            os.close(descriptor)
        group.forget_peak()
        group.start()
        group.cpu_ns(), group.peak_bytes(), group.oom_kills()
    except BaseException:
        group.remove()
        groups.close()
        raise
    group.remove()


def _started(pid: int) -> str:
    """When the process began: a number that a later process of the same pid does not share."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def sweep(bases: Iterable[str]) -> None:
    """What a supervisor left that was killed together with its keeper."""
    for base in set(bases):
        for entry in Path(base).glob(f"{_PREFIX}*-*"):
            _, pid, started = entry.name.split("-", 2)
            with contextlib.suppress(OSError, ValueError):
                if _started(int(pid)) == started:
                    continue
            _clear([str(entry)])
