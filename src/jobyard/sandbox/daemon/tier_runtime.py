"""Runtime of one tier: its zygote, its cgroups and its pools of boxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from jobyard.sandbox.daemon import landlock, rootfs, seccomp
from jobyard.sandbox.daemon.box import Box, SpawnLimits
from jobyard.sandbox.daemon.box_pool import BoxPool
from jobyard.sandbox.daemon.cgroups import CgroupManager
from jobyard.sandbox.daemon.languages import LanguageDefinition, readable_paths
from jobyard.sandbox.daemon.zygote_client import ZygoteClient
from jobyard.sandbox.protocol import Limits, Tier

INTERPRETER: Final = "/usr/bin/python3"
_DRIVERS = Path(__file__).parent.parent / "drivers"
_FIRST_UID = 300_000  # above the ids of users and services, below those of containers
_UIDS = 2048
_MAX_DAEMONS = 64
_NAMESPACE_UID = 1000  # a program's user id in its own user namespace
_DRIVER_FILES = 16  # descriptors that a pre-started language runtime opens for itself
_NOBODY = 65534
EXEC: Final = "exec"


class TierRuntime:
    def __init__(
        self,
        tier: Tier,
        languages: dict[str, LanguageDefinition],
        groups: CgroupManager | None,
        *,
        pool: int | None = None,
        unix_sockets: bool = False,
        tcp_sockets: int = 0,
        without: Iterable[str] = (),
    ) -> None:
        self.tier, self.groups, self._languages = tier, groups, languages
        self._without = set(without)
        self._max_pool_size = pool
        self._wants_unix_sockets = unix_sockets
        self._wanted_tcp_sockets = tcp_sockets
        self._uid_lock: socket.socket | None = None
        self._user_ids = self._uids()
        self.zygote = ZygoteClient(groups, self._user_ids)
        self.kinds = self._kinds()
        self._pools: dict[str, BoxPool] = {}
        self.has_folder = self._has_namespaces
        self.has_own_uid = tier is not Tier.C or os.getuid() == 0  # tier B: the one of its own user namespace

    @property
    def _has_namespaces(self) -> bool:
        return self.tier is not Tier.C and "namespaces" not in self._without

    @property
    def can_fork(self) -> bool:
        """Whether programs may fork: without a cgroup children escape limits, without a namespace they outlive it."""
        return self.groups is not None and self._has_namespaces

    @property
    def has_unix_sockets(self) -> bool:
        return self._wants_unix_sockets and not self.why_no_unix_sockets

    @property
    def why_no_unix_sockets(self) -> str:
        """Why the operator's option has no effect; empty if it has, or if it is off."""
        if not self._wants_unix_sockets or self.can_fork:
            return ""
        if not self._has_namespaces:
            return f"tier {self.tier} has no network namespace, so programs could reach the sockets of the machine"
        return f"tier {self.tier} has no cgroup here, and only a cgroup counts what is queued in sockets"

    @property
    def tcp_sockets(self) -> int:
        """How many sockets a program may have when it connects; 0 if it may not use TCP."""
        return 0 if self.why_no_tcp else self._wanted_tcp_sockets

    @property
    def why_no_tcp(self) -> str:
        """Why the operator's option has no effect; empty if it has, or if it is off."""
        if not self._wanted_tcp_sockets:
            return ""
        if not self._has_namespaces:
            return f"tier {self.tier} has no network namespace, so programs could reach the ports of the machine"
        if self.tier is not Tier.A:
            return f"tier {self.tier} cannot configure a network for each run"
        if "seccomp" in self._without:
            return "the filter, which limits the connections, is left out"
        return seccomp.why_no_notifications()

    def _uids(self) -> list[int]:
        if self.tier is Tier.B:
            return [_NAMESPACE_UID] * _UIDS
        if os.getuid() != 0:
            return [os.getuid()] * _UIDS
        self._uid_lock, first = _reserve_uids()
        return list(range(first, first + _UIDS))

    def _kinds(self) -> dict[str, dict[str, Any]]:
        kinds: dict[str, dict[str, Any]] = {"python": {"type": "python"}, EXEC: {"type": EXEC}}
        for name, language in self._languages.items():
            if language.kind == "driver":
                kinds[name] = {"type": "driver", "argv": list(language.start)}
        return kinds

    def kind_of(self, name: str) -> str:
        language = self._languages.get(name)
        if language is None:  # a canary runs as Python
            return "python"
        return name if language.kind == "driver" else language.kind

    def _config(self) -> dict[str, Any]:
        rules = seccomp.Rules(
            can_fork=self.can_fork,
            can_execute=self._has_namespaces,
            own_pid_only=not self._has_namespaces,
            can_change_files=self.has_folder,
            has_memory_group=self.groups is not None,
            unix_sockets=self.has_unix_sockets,
            tcp=self.tcp_sockets > 0,
        )
        preload = [module for language in self._languages.values() for module in language.preload]
        python_path = [path for language in self._languages.values() for path in language.python_path]
        return {
            "namespaces": self._has_namespaces,
            "user_namespace": self.tier is Tier.B,
            "has_namespace_pool": self.tier is Tier.A and self._has_namespaces,
            "set_uid": self.tier is not Tier.B and os.getuid() == 0,
            "shares_user": not self.has_own_uid,
            "uid": _unprivileged_uid(),  # as seen from outside of the user namespace
            "become": _unprivileged_uid() if self.tier is Tier.B and os.getuid() == 0 else -1,
            "root": self._root(),
            "filters": seccomp.Filters(b"", b"") if "seccomp" in self._without else seccomp.build(rules),
            "tcp_sockets": self.tcp_sockets,
            "pid_in_filter": rules.own_pid_only and "seccomp" not in self._without,
            "has_groups": self.groups is not None,
            "clone_into_group": self.groups is not None and self.groups.version == "v2",
            "landlock": None if self._has_namespaces else landlock.rules(python_path),
            "preload": preload,
            "python_path": python_path,
            "kinds": list(self.kinds.values()),
        }

    def _root(self) -> list[rootfs.Step]:
        if not self._has_namespaces:
            return []
        readable = readable_paths(self._languages)
        return rootfs.steps(_drivers(), self._user_ids, readable, has_loopback=self.tcp_sockets > 0)

    async def open(self) -> None:
        """Start the zygote. Raises SpawnFailed."""
        await self.zygote.start(INTERPRETER, self._config())
        for index, kind in enumerate(self.kinds):
            self._pools[kind] = BoxPool(
                self.zygote, index, self._spawn_limits(kind, Limits()), self._pool_size_of(kind)
            )

    def _pool_size_of(self, kind: str) -> int:
        sizes = [language.pool for name, language in self._languages.items() if self.kind_of(name) == kind]
        wanted = max(sizes, default=0)
        return wanted if self._max_pool_size is None else min(wanted, self._max_pool_size)

    def pool_size(self, name: str) -> int:
        return self._pools[self.kind_of(name)].size

    def keep_warm(self, kinds: Iterable[str]) -> None:
        for kind in set(kinds):
            self._pools[kind].refill()

    def refill(self, kind: str) -> None:
        """Refill the pool after the callbacks that are ready now."""
        asyncio.get_running_loop().call_soon(self._pools[kind].refill_if_scheduled)

    def take(self, kind: str, limits: Limits) -> Box:
        return self._pools[kind].take(self._spawn_limits(kind, limits))

    def _spawn_limits(self, kind: str, limits: Limits) -> SpawnLimits:
        if not self.has_folder:
            return SpawnLimits()
        files_open = limits.files_open + _DRIVER_FILES if self.kinds[kind]["type"] == "driver" else 0
        return SpawnLimits(limits.disk_mb << 20, limits.disk_files, files_open)

    def idle(self, kind: str) -> int:
        return self._pools[kind].idle if kind in self._pools else 0

    async def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        await self.zygote.stop()
        if self._uid_lock is not None:
            self._uid_lock.close()
        if self.groups is not None:
            self.groups.close()


def _reserve_uids() -> tuple[socket.socket, int]:
    """Reserve a range of user ids against other daemons on this machine, by binding a name while this process lives."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for number in range(_MAX_DAEMONS):
        with contextlib.suppress(OSError):
            lock.bind(f"\0jobyard-sandbox-users-{number}")
            return lock, _FIRST_UID + number * _UIDS
    lock.close()
    raise OSError(f"cannot reserve user ids: {_MAX_DAEMONS} sandbox daemons run on this machine already")


def _unprivileged_uid() -> int:
    """The user who creates user namespaces: this one, or the user `nobody` when root tries tier B."""
    return os.getuid() or _NOBODY


def _drivers() -> dict[str, str]:
    with contextlib.suppress(OSError):
        return {path.name: path.read_text() for path in _DRIVERS.iterdir() if path.suffix in (".js", ".ts")}
    return {}
