"""A tier at work: its zygote, its control groups, and its pools of members."""

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
from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.zygote_client import ZygoteClient
from jobyard.sandbox.protocol import Limits, Tier

INTERPRETER: Final = "/usr/bin/python3"
_DRIVERS = Path(__file__).parent.parent / "drivers"
_FIRST_UID = 300_000  # between those of people and services and those of containers
_UIDS = 2048
_UID_BLOCKS = 64
_INSIDE_UID = 1000  # who a program is in a user namespace of its own
_DRIVER_FILES = 16  # what a runtime that was started ahead has open for itself
_NOBODY = 65534
EXEC: Final = "exec"
_EXEC_POOL = 4


class TierRuntime:
    def __init__(
        self,
        tier: Tier,
        languages: dict[str, LanguageDefinition],
        groups: CgroupManager | None,
        *,
        pool: int | None = None,
        without: Iterable[str] = (),
    ) -> None:
        self.tier, self.groups, self._languages = tier, groups, languages
        self._without = set(without)
        self._pool_size = pool
        self._block: socket.socket | None = None
        self.zygote = ZygoteClient(groups, self._uids())
        self.kinds = self._kinds()
        self._pools: dict[str, BoxPool] = {}
        self.has_folder = self._has_namespaces
        self.has_own_uid = tier is not Tier.C or os.getuid() == 0  # also in a user namespace of its own

    @property
    def _has_namespaces(self) -> bool:
        return self.tier is not Tier.C and "namespaces" not in self._without

    @property
    def can_fork(self) -> bool:
        """Without a group limits hold for each process, without a namespace one might stay: then there is just one."""
        return self.groups is not None and self._has_namespaces

    def _uids(self) -> list[int]:
        if self.tier is Tier.B:
            return [_INSIDE_UID] * _UIDS
        if os.getuid() != 0:
            return [os.getuid()] * _UIDS
        self._block, first = _uid_block()
        return list(range(first, first + _UIDS))

    def _kinds(self) -> dict[str, dict[str, Any]]:
        kinds: dict[str, dict[str, Any]] = {"python": {"type": "python"}, EXEC: {"type": EXEC}}
        for name, language in self._languages.items():
            if language.kind == "driver":
                kinds[name] = {"type": "driver", "argv": list(language.start)}
        return kinds

    def kind_of(self, name: str) -> str:
        language = self._languages.get(name)
        if language is None:  # a canary
            return "python"
        return name if language.kind == "driver" else language.kind

    def _config(self) -> dict[str, Any]:
        rules = seccomp.Rules(
            can_fork=self.can_fork,
            can_execute=self._has_namespaces,
            own_pid_only=not self._has_namespaces,
            can_change_files=self.has_folder,
            has_memory_group=self.groups is not None,
        )
        preload = [module for language in self._languages.values() for module in language.preload]
        return {
            "namespaces": self._has_namespaces,
            "user_namespace": self.tier is Tier.B,
            "has_namespace_pool": self.tier is Tier.A and self._has_namespaces,
            "set_uid": self.tier is not Tier.B and os.getuid() == 0,
            "uid": _ordinary_uid(),  # outside of a user namespace
            "become": _ordinary_uid() if self.tier is Tier.B and os.getuid() == 0 else -1,
            "root": rootfs.steps(_drivers()) if self._has_namespaces else [],
            "filters": seccomp.Filters(b"", b"") if "seccomp" in self._without else seccomp.build(rules),
            "pid_in_filter": rules.own_pid_only and "seccomp" not in self._without,
            "has_groups": self.groups is not None,
            "clone_into_group": self.groups is not None and self.groups.version == "v2",
            "landlock": None if self._has_namespaces else landlock.rules(),
            "preload": preload,
            "kinds": list(self.kinds.values()),
        }

    async def open(self) -> None:
        """Raises SpawnFailed when there can be no zygote, or no first member."""
        await self.zygote.start(INTERPRETER, self._config())
        for index, kind in enumerate(self.kinds):
            self._pools[kind] = BoxPool(self.zygote, index, self._shape(kind, Limits()), self._size(kind))

    def _size(self, kind: str) -> int:
        sizes = [language.pool for name, language in self._languages.items() if self.kind_of(name) == kind]
        wanted = max(sizes, default=0)
        return wanted if self._pool_size is None else min(wanted, self._pool_size)

    def pool_size(self, name: str) -> int:
        return self._pools[self.kind_of(name)].size

    def fill(self, kinds: Iterable[str]) -> None:
        """Keep these kinds warm from now on."""
        for kind in set(kinds):
            self._pools[kind].refill()

    def refill(self, kind: str) -> None:
        """Make what is missing as soon as what is ready now has been done."""
        asyncio.get_running_loop().call_soon(self._pools[kind].refill_started)

    def take(self, kind: str, limits: Limits) -> Box:
        return self._pools[kind].take(self._shape(kind, limits))

    def _shape(self, kind: str, limits: Limits) -> SpawnLimits:
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
        if self._block is not None:
            self._block.close()
        if self.groups is not None:
            self.groups.close()


def _uid_block() -> tuple[socket.socket, int]:
    """User ids that no other daemon of this machine gives to its programs: a name that is bound while we live."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for number in range(_UID_BLOCKS):
        with contextlib.suppress(OSError):
            held.bind(f"\0jobyard-sandbox-users-{number}")
            return held, _FIRST_UID + number * _UIDS
    held.close()
    raise OSError(f"{_UID_BLOCKS} sandbox daemons run here already, or hold the names that count them")


def _ordinary_uid() -> int:
    """Who makes user namespaces: ourselves; root only tries what an ordinary user would get."""
    return os.getuid() or _NOBODY


def _drivers() -> dict[str, str]:
    with contextlib.suppress(OSError):
        return {path.name: path.read_text() for path in _DRIVERS.iterdir() if path.suffix == ".js"}
    return {}
