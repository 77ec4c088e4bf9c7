"""Limits and pauses that may have been in force at a position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobyard.domain.admission import UNLIMITED, Group, Queue, limit_of
from jobyard.domain.job import QueueSettings
from jobyard.testing.history.events import NothingReturned, RecordedConfigure, RecordedLimit, RecordedPause
from jobyard.testing.history.job_traces import Span
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.timeline import Timeline

Key = tuple[str, ...] | tuple[str, str, str | None]


@dataclass(slots=True)
class RecordedSetting:
    span: Span
    value: Any


class RecordedConfiguration:
    """`settings` and `limits` were in force before the history began; the default is no limit and no pause."""

    def __init__(
        self,
        history: History,
        timeline: Timeline,
        settings: Mapping[str, QueueSettings],
        limits: Mapping[tuple[str, str], int],
    ) -> None:
        self._timeline = timeline
        self._settings = settings
        self._limits = limits
        self._changes: dict[Key, list[RecordedSetting]] = defaultdict(list)
        for operation, configure, _ in history.select(RecordedConfigure, NothingReturned):
            self._add(("settings", configure.queue), operation, configure.settings)
        for operation, limit, _ in history.select(RecordedLimit, NothingReturned):
            self._add(("limit", limit.queue, limit.group), operation, limit.limit)
        for operation, pause, _ in history.select(RecordedPause, NothingReturned):
            self._add(("pause", pause.queue, pause.group), operation, pause.paused)

    def group_limits(self, queue: str, group: str | None, position: int) -> set[int]:
        """Every limit that may have been in force."""
        own = {None} if group is None else self._possible(("limit", queue, group), position, self._own(queue, group))
        shared = {settings.max_per_group for settings in self._settings_at(queue, position)}
        return {
            limit_of(Queue(queue, max_per_group=per_group), Group(group, limit=limit))
            for limit in own
            for per_group in shared
        }

    def queue_limits(self, queue: str, position: int) -> set[int]:
        found = {settings.max_running for settings in self._settings_at(queue, position)}
        return {UNLIMITED if limit is None else limit for limit in found}

    def pauses(self, queue: str, group: str | None, position: int) -> set[bool]:
        """Whether the queue (group None) or the group may have been paused, may not, or either."""
        return self._possible(("pause", queue, group), position, False)

    def _own(self, queue: str, group: str) -> int | None:
        return self._limits.get((queue, group))

    def _settings_at(self, queue: str, position: int) -> set[QueueSettings]:
        return self._possible(("settings", queue), position, self._settings.get(queue, QueueSettings()))

    def _add(self, key: Key, operation: RecordedOperation, value: Any) -> None:
        earliest, latest = self._timeline.earliest(operation.begin), self._timeline.latest(operation.end)
        self._changes[key].append(RecordedSetting(Span(earliest, latest, operation.begin, operation.end), value))

    def _possible(self, key: Key, position: int, initial: Any) -> set[Any]:
        changes = self._changes.get(key)
        if not changes:
            return {initial}
        begun = [change for change in changes if change.span.earliest <= position]
        last_certain = max((change.span.begin for change in begun if change.span.latest <= position), default=None)
        if last_certain is None:
            return {initial, *(change.value for change in begun)}
        return {change.value for change in begun if change.span.end >= last_certain}
