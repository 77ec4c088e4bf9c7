"""Settings and counts of queues and groups, from the columns that the stores have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jobyard.domain.job import QueueSettings
from jobyard.errors import NotPossible
from jobyard.ports.admin_store import GroupInfo, QueueInfo

SETTINGS = QueueSettings.__struct_fields__
COUNTS = ("waiting", "delayed", "running", "completed", "failed", "cancelled", "removed_by_cap", "removed_by_cap_at")


def settings_from_row(row: Sequence[Any]) -> QueueSettings:
    """The row has the fields of `QueueSettings`, in their order."""
    running, per_group, waiting, waiting_per_group, completed, failed, completed_for, failed_for, at_most = row
    return QueueSettings(  # written out: it runs in every transaction
        max_running=running,
        max_per_group=per_group,
        max_waiting=waiting,
        max_waiting_per_group=waiting_per_group,
        keep_completed=completed,
        keep_failed=failed,
        keep_completed_seconds=completed_for,
        keep_failed_seconds=failed_for,
        keep_at_most=at_most,
    )


def settings_row(settings: QueueSettings) -> tuple[Any, ...]:
    return tuple(getattr(settings, name) for name in SETTINGS)


def queue_info(name: str, settings: QueueSettings, paused: Any, counts: Iterable[int | None]) -> QueueInfo:
    """`counts` are in the order of COUNTS."""
    named: dict[str, Any] = dict(zip(COUNTS, counts, strict=True))
    return QueueInfo(name=name, settings=settings, paused=bool(paused), **named)


def queue_not_empty(name: str) -> NotPossible:
    return NotPossible(f'Cannot remove queue "{name}": it has jobs. Delete them first, finished ones too.')


def group_info(queue: str, max_per_group: int | None, row: Sequence[Any]) -> GroupInfo:
    """The row: name (empty for jobs without a group), own limit, paused, waiting, delayed, running."""
    name, own, paused, waiting, delayed, running = row
    return GroupInfo(
        queue=queue,
        name=name or None,
        limit=own,
        effective_limit=own if own is not None else max_per_group if name else None,
        paused=bool(paused),
        waiting=waiting,
        delayed=delayed,
        running=running,
    )
