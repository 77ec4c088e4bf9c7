"""Objects with one shared revision counter, and the history that watches replay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from jobyard.demo.fake_kubernetes.errors import JsonObject

Key = tuple[str, str]  # namespace ("" for cluster scope), name


class Change(NamedTuple):
    revision: int
    at: float
    plural: str
    key: Key
    before: JsonObject | None
    after: JsonObject | None


Listener = Callable[[Change], None]
_revision = attrgetter("revision")


class Storage:
    """Stored objects are never changed in place: a write replaces the whole dict."""

    def __init__(self, clock: Callable[[], float], history_seconds: float) -> None:
        self._clock = clock
        self._history_seconds = history_seconds
        self._objects: dict[str, dict[Key, JsonObject]] = {}
        self._history: dict[str, list[Change]] = {}
        self._compacted_at: dict[str, int] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self.revision = 1

    def get(self, plural: str, key: Key) -> JsonObject | None:
        return self._objects.get(plural, {}).get(key)

    def all(self, plural: str, namespace: str | None = None) -> Iterator[JsonObject]:
        for (where, _), item in list(self._objects.get(plural, {}).items()):
            if namespace is None or where == namespace:
                yield item

    def put(self, plural: str, key: Key, item: JsonObject) -> JsonObject:
        """Store a new version; `item` must not be changed afterwards."""
        before = self.get(plural, key)
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        self._objects.setdefault(plural, {})[key] = item
        self._record(Change(self.revision, self._clock(), plural, key, before, item))
        return item

    def remove(self, plural: str, key: Key) -> JsonObject:
        """Remove an object; its last version carries the revision of the removal."""
        before = self._objects[plural].pop(key)
        self.revision += 1
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.revision)}}
        self._record(Change(self.revision, self._clock(), plural, key, last, None))
        return last

    def subscribe(self, plural: str, listener: Listener) -> Callable[[], None]:
        listeners = self._listeners.setdefault(plural, [])
        listeners.append(listener)

        def unsubscribe() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return unsubscribe

    def changes_after(self, plural: str, revision: int) -> list[Change] | None:
        """Every later change of this resource; None if some of them were compacted away."""
        self._forget_old(plural)
        if revision < self.compacted_revision(plural):
            return None
        history = self._history.get(plural, [])
        return history[bisect_right(history, revision, key=_revision) :]

    def snapshot(self, plural: str, revision: int) -> dict[Key, JsonObject] | None:
        """The objects as they were at a revision; None if the history does not reach back so far."""
        later = self.changes_after(plural, revision)
        if later is None:
            return None
        objects = dict(self._objects.get(plural, {}))
        for change in reversed(later):
            if change.before is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.before
        return objects

    def compacted_revision(self, plural: str) -> int:
        return self._compacted_at.get(plural, 0)

    def compact(self, revision: int | None = None) -> None:
        """Forget the history up to a revision (default: all of it)."""
        last = self.revision if revision is None else min(revision, self.revision)
        for plural in set(self._history) | set(self._objects):
            self._drop(plural, last)

    def _record(self, change: Change) -> None:
        self._history.setdefault(change.plural, []).append(change)
        if len(self._history[change.plural]) % 256 == 0:
            self._forget_old(change.plural)
        for listener in list(self._listeners.get(change.plural, ())):
            listener(change)

    def _forget_old(self, plural: str) -> None:
        history = self._history.get(plural, [])
        limit = self._clock() - self._history_seconds
        if history and history[0].at < limit:
            kept = next((index for index, change in enumerate(history) if change.at >= limit), len(history))
            self._drop(plural, history[kept - 1].revision)

    def _drop(self, plural: str, revision: int) -> None:
        history = self._history.get(plural, [])
        del history[: bisect_right(history, revision, key=_revision)]
        self._compacted_at[plural] = max(revision, self.compacted_revision(plural))
