"""Platforms: queues whose jobs run one at a time, and which queue takes a workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

import msgspec

GIGABYTE = 1 << 30
EXTRACT = "extract"
DEFAULT = "default"
# Workflows that belong to no single platform.
EXTRACT_KINDS = frozenset({"url_extraction", "single_product", "multi_platform"})


class WorkerClass(StrEnum):
    """What the workers of a platform run, and so how much memory one of them may use."""

    BROWSER = "browser"
    API = "api"

    @property
    def memory_bytes(self) -> int:
        return {WorkerClass.BROWSER: 4 * GIGABYTE, WorkerClass.API: 2 * GIGABYTE}[self]


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    max_running: int | None = 1  # None: no limit
    worker_class: WorkerClass | None = msgspec.field(default=None, name="class")  # None: no memory limit


def queue_for(platforms: Collection[str], kind: str, platform: str | None = None) -> str:
    """The queue of a workflow: of its platform, else `extract` or `default` by its kind.

    >>> queue_for({"ably"}, "scan", "ably"), queue_for({"ably"}, "single_product"), queue_for({"ably"}, "report")
    ('ably', 'extract', 'default')
    """
    if platform is not None and platform in platforms:
        return platform
    return EXTRACT if kind in EXTRACT_KINDS else DEFAULT


def known_platforms(platforms: Iterable[str]) -> list[str]:
    """The names that a worker may serve; work of no platform goes to the last two."""
    return [*dict.fromkeys([*platforms, EXTRACT, DEFAULT])]


def memory_budget(platforms: Mapping[str, Platform], queues: Collection[str]) -> int | None:
    """The memory of a worker of these queues, or of all if there are none: the largest of its classes, if any.

    >>> memory_budget({"ably": Platform(worker_class=WorkerClass.API)}, ()) == 2 * GIGABYTE
    True
    """
    classes = [each.worker_class for name, each in platforms.items() if not queues or name in queues]
    return max((each.memory_bytes for each in classes if each is not None), default=None)
