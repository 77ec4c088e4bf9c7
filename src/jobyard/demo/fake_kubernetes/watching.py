"""Watches: replay from a revision, selectors on changes, bookmarks, time-outs and cut connections."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

import msgspec

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.errors import ConnectionLostError, JsonObject
from jobyard.demo.fake_kubernetes.resources import Resource
from jobyard.demo.fake_kubernetes.selectors import Matcher
from jobyard.demo.fake_kubernetes.storage import Change, Storage
from jobyard.demo.fake_kubernetes.values import copy

_INITIAL_END = "k8s.io/initial-events-end"
# The last bookmark comes this long before the time-out, so that a client resumes from a recent revision.
_LAST_BOOKMARK_SECONDS = 2.0


class WatchOptions(msgspec.Struct, kw_only=True):
    namespace: str | None
    wanted: Matcher
    revision: str = ""
    bookmarks: bool = False
    timeout_seconds: float | None = None
    send_initial_events: bool = False
    bookmark_seconds: float = 60.0
    lag_seconds: float = 0.0
    cut_after: float | None = None
    silent_after: float | None = None
    # The history is treated as compacted, whatever the revision.
    gone: bool = False
    max_buffered: int = 10_000


class Watch:
    """An asynchronous iterator of watch events; it ends when the time-out has passed."""

    def __init__(self, storage: Storage, resource: Resource, options: WatchOptions, rng: random.Random) -> None:
        self._storage = storage
        self._resource = resource
        self._options = options
        self._rng = rng
        self._ready = asyncio.Event()
        self._events: deque[JsonObject] = deque()
        self._ended = False
        self._cut = False
        self._silent = False
        self._timers: list[asyncio.TimerHandle] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._start()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> JsonObject:
        while not self._events or self._silent:
            if self._cut:
                raise ConnectionLostError("connection closed in the middle of a line", b'{"type":"MODIFIED","obj')
            if self._ended:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        if self._options.lag_seconds:
            await asyncio.sleep(self._rng.uniform(0, self._options.lag_seconds))
        if self._cut:
            line = msgspec.json.encode(self._events[0]) if self._events else b""
            raise ConnectionLostError("connection closed in the middle of a line", line[: len(line) // 2])
        return self._events.popleft()

    def close(self) -> None:
        self._ended = True
        self._ready.set()
        self._unsubscribe()
        for timer in self._timers:
            timer.cancel()

    def _start(self) -> None:
        options = self._options
        if options.gone:
            self._push("ERROR", gone(options.revision, self._storage, self._resource).body)
            self.close()
            return
        if options.revision in {"", "0"} or options.send_initial_events:
            self._push_current()
        else:
            changes = self._storage.changes_after(self._resource.plural, int(options.revision))
            for change in changes or []:
                self._deliver(change)
        self._unsubscribe = self._storage.subscribe(self._resource.plural, self._deliver)
        self._start_timers()

    def _push_current(self) -> None:
        for item in self._storage.all(self._resource.plural, self._options.namespace):
            if self._options.wanted(item):
                self._push("ADDED", copy(item))
        if self._options.send_initial_events and self._options.bookmarks:
            self._push_bookmark({_INITIAL_END: "true"})

    def _start_timers(self) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        # Without a time-out in the request the API server chooses one of 30 to 60 minutes.
        timeout = options.timeout_seconds or self._rng.uniform(1800, 3600)
        self._timers.append(loop.call_later(timeout, self.close))
        if options.cut_after is not None:
            self._timers.append(loop.call_later(options.cut_after, self.cut))
        if options.silent_after is not None:
            self._timers.append(loop.call_later(options.silent_after, self._fall_silent))
        if options.bookmarks:
            self._timers.append(loop.call_later(max(0.0, timeout - _LAST_BOOKMARK_SECONDS), self._push_bookmark))
            self._schedule_bookmark()

    def _schedule_bookmark(self) -> None:
        loop = asyncio.get_running_loop()

        def send() -> None:
            self._push_bookmark()
            self._schedule_bookmark()

        if not self._ended:
            self._timers = [timer for timer in self._timers if timer.when() > loop.time()]
            self._timers.append(loop.call_later(self._options.bookmark_seconds, send))

    def _fall_silent(self) -> None:
        """As a connection that the other side has lost: it is open, but nothing comes and it does not end."""
        self._silent = True
        for timer in self._timers:
            timer.cancel()

    def cut(self) -> None:
        self._cut = True
        self.close()

    def _deliver(self, change: Change) -> None:
        """Turn a change into what a client with this selector sees; leaving the selector is a deletion."""
        if self._options.namespace not in {None, change.key[0]}:
            return
        if not self._options.revision.isdecimal() or change.revision > int(self._options.revision):
            wanted = self._options.wanted
            was = change.before is not None and wanted(change.before)
            now = change.after is not None and wanted(change.after)
            if now:
                self._push("MODIFIED" if was else "ADDED", copy(change.after))
            elif was and change.before is not None:
                last = copy(change.before)
                last["metadata"]["resourceVersion"] = str(change.revision)
                self._push("DELETED", last)

    def _push_bookmark(self, annotations: JsonObject | None = None) -> None:
        metadata: JsonObject = {"resourceVersion": str(self._storage.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        item: JsonObject = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        if self._resource.plural == "pods":
            item.update(spec={"containers": None}, status={})
        self._push("BOOKMARK", item)

    def _push(self, kind: str, item: JsonObject | None) -> None:
        if self._ended:
            return
        if len(self._events) >= self._options.max_buffered:
            # A client that reads too slowly is disconnected, as the API server does.
            self.close()
            return
        self._events.append({"type": kind, "object": item})
        self._ready.set()


def gone(revision: str, storage: Storage, resource: Resource) -> errors.ApiError:
    oldest = max(storage.compacted_revision(resource.plural) + 1, 1)
    return errors.expired(f"too old resource version: {revision} ({oldest})")
