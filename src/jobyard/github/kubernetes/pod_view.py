"""The pods of one namespace, kept up to date by list and watch.

A pod leaves the view when the watch says that it was deleted, or when a list lacks it and a GET confirms that it does
not exist: a list that is incomplete, or fails, frees nothing. Pods that are being created are in the view from before
the request, until the watch shows them or a GET says that they do not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterator

import msgspec

from jobyard.github.kubernetes.api import GONE, NOT_FOUND, KubernetesApi, KubernetesError, Object
from jobyard.github.kubernetes.pod_state import instance_of
from jobyard.github.launcher import Instance

log = logging.getLogger("jobyard.github")

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.2, 15.0
# How long the view counts as current after its watch has ended: time to open the next one.
RECONNECT_SECONDS = 10.0
# A create that failed may still take effect until the API server gives up on it.
RESERVED_SECONDS = 30.0
RESOLVE_EVERY_SECONDS = 5.0
# A full list from time to time, in case that the watch has lost something.
RELIST_SECONDS = 600.0
CONFIRM_AT_ONCE = 8


class Expired(Exception):
    """The resource version is too old to watch from."""


class IncompleteList(Exception):
    """A list lacks a pod that exists."""


class Reservation(msgspec.Struct):
    instance: Instance
    until: float  # by the loop's clock; then a GET decides


class PodView:
    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        selector: str,
        on_change: Callable[[Instance], None],
        *,
        watch_seconds: float = 90.0,
    ) -> None:
        self._api = api
        self.namespace = namespace
        self._selector = selector
        self._on_change = on_change
        self._watch_seconds = watch_seconds
        self._instances: dict[str, Instance] = {}
        self._reserved: dict[str, Reservation] = {}
        self._version: str | None = None  # to watch from; None: list first
        self._listed_at = 0.0
        self._is_listed = False
        self._lost_at: float | None = None  # when the watch ended; None: it is open
        self._failures = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._lost_at = loop.time()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._resolve_reservations())]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What is known

    @property
    def is_current(self) -> bool:
        if not (self._is_listed and self._tasks):
            return False
        return self._lost_at is None or asyncio.get_running_loop().time() - self._lost_at < RECONNECT_SECONDS

    def instances(self) -> list[Instance]:
        return [*self._instances.values(), *(each.instance for each in self._reserved.values())]

    def __contains__(self, name: str) -> bool:
        return name in self._instances or name in self._reserved

    # Own creates

    def reserve(self, instance: Instance) -> None:
        """Count a pod that is about to be created, until `settle`."""
        if instance.name not in self._instances:
            self._reserved[instance.name] = Reservation(instance, math.inf)

    def settle(self, name: str, *, may_exist: bool) -> None:
        """The request to create the pod has ended: the pod was not created, or it may have been."""
        if not may_exist:
            self._reserved.pop(name, None)
        elif name in self._reserved:
            self._reserved[name].until = self._now() + RESERVED_SECONDS

    def confirm(self, instance: Instance) -> None:
        """Update the reservation with what a response says; nothing if the watch has already shown the pod."""
        if instance.name in self._reserved:
            self._reserved[instance.name].instance = instance
            self.settle(instance.name, may_exist=True)

    def forget(self, instance: Instance) -> None:
        """The API server says that this very pod does not exist."""
        if instance.uid:
            self._drop(instance.name, instance.uid)

    async def _resolve_reservations(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_EVERY_SECONDS)
            due = [name for name, each in self._reserved.items() if self._now() >= each.until]
            for name in due:
                with contextlib.suppress(KubernetesError):  # it stays reserved
                    pod = await self._get(name)
                    if pod is not None and self._selects(pod):
                        self.confirm(instance_of(pod))
                    elif (gone := self._reserved.pop(name, None)) is not None:
                        self._notify(msgspec.structs.replace(gone.instance, is_terminating=True))

    # List and watch

    async def _run(self) -> None:
        while True:
            wait: float | None = None
            try:
                await self.run_once()
                self._failures = 0
            except Expired:
                self._version = None
                wait = self._backoff() if self._failures else None
                self._failures += 1
            except Exception as error:
                wait = self._failed(error)
            if self._lost_at is None:
                self._lost_at = self._now()
            if wait is not None:
                await asyncio.sleep(wait)

    async def run_once(self) -> None:
        """List if that is due, then follow one watch to its end."""
        if self._version is None or self._now() - self._listed_at > RELIST_SECONDS:
            await self._list()
        opened_at = self._now()
        await self._watch(self._version or "")
        if self._now() - opened_at < 1.0:
            await asyncio.sleep(random.uniform(0.5, 1.0))  # a server that ends watches at once is not hammered

    def _failed(self, error: Exception) -> float:
        """How long to wait after the error, in seconds."""
        is_expected = isinstance(error, KubernetesError | IncompleteList)
        if self._failures == 0 or not is_expected:
            text = "Cannot follow the pods of namespace %s: %s"
            log.warning(text, self.namespace, error, exc_info=None if is_expected else error)
        asked = error.retry_after_seconds if isinstance(error, KubernetesError) else None
        wait = max(self._backoff(), min(asked or 0.0, LONGEST_WAIT_SECONDS))
        self._failures += 1
        if self._failures % 3 == 0:
            self._version = None  # perhaps one that the server does not know, after a restored backup
        return wait

    def _backoff(self) -> float:
        longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(self._failures, 10))
        return random.uniform(longest / 2, longest)

    async def _list(self) -> None:
        before = dict(self._instances)
        found = await self._api.list("pods", self.namespace, self._selector)
        listed = {pod["metadata"]["name"]: pod for pod in found.items}
        missing = [name for name in before if name not in listed]
        are_gone = await self._are_gone([before[name] for name in missing])
        gone = [name for name, is_gone in zip(missing, are_gone, strict=True) if is_gone]
        if len(gone) < len(missing):
            kept = sorted(set(missing) - set(gone))
            raise IncompleteList(f"the list lacks {len(kept)} of {len(before)} pods that exist, such as {kept[0]}")
        for pod in listed.values():
            self._apply(pod)
        for name in gone:
            self._drop(name, before[name].uid)
        self._version, self._is_listed = found.resource_version, True
        self._listed_at = self._lost_at = self._now()

    async def _are_gone(self, instances: list[Instance]) -> list[bool]:
        """Whether each pod is really gone, or does not belong to this manager any more."""
        limit = asyncio.Semaphore(CONFIRM_AT_ONCE)

        async def is_gone(instance: Instance) -> bool:
            async with limit:
                pod = await self._get(instance.name)
            return pod is None or pod["metadata"].get("uid") != instance.uid or not self._selects(pod)

        results = await asyncio.gather(*(is_gone(instance) for instance in instances), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result is True for result in results]

    async def _watch(self, version: str) -> None:
        # Spread over time, so that watches of several managers do not end together.
        seconds = self._watch_seconds * random.uniform(0.9, 1.1)
        try:
            async with self._api.watch("pods", self.namespace, version, self._selector, seconds) as events:
                self._lost_at = None
                async for event in events:
                    self._handle(event.type, event.object)
        except KubernetesError as error:
            if error.status == GONE:
                raise Expired from error
            raise

    def _handle(self, type: str, object: Object) -> None:
        if type == "ERROR":
            if object.get("code") == GONE:
                raise Expired
            raise KubernetesError(object.get("code") or 500, object.get("reason") or "", object.get("message") or "")
        metadata = object["metadata"]
        if type == "DELETED":
            self._drop(metadata["name"], metadata.get("uid", ""))
        elif type in {"ADDED", "MODIFIED"}:
            self._apply(object)
        self._version = metadata["resourceVersion"]
        self._failures = 0

    def _apply(self, pod: Object) -> None:
        instance = instance_of(pod)
        self._reserved.pop(instance.name, None)
        if self._instances.get(instance.name) != instance:
            self._instances[instance.name] = instance
            self._notify(instance)

    def _drop(self, name: str, uid: str) -> None:
        if name in self._reserved and self._reserved[name].instance.uid == uid:
            del self._reserved[name]
        known = self._instances.get(name)
        if known is not None and known.uid == uid:
            del self._instances[name]
            self._notify(msgspec.structs.replace(known, is_terminating=True))

    def _notify(self, instance: Instance) -> None:
        try:
            self._on_change(instance)
        except Exception:
            log.exception("cannot report the change of runner %s", instance.name)

    async def _get(self, name: str) -> Object | None:
        try:
            return await self._api.get("pods", self.namespace, name)
        except KubernetesError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _selects(self, pod: Object) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in self._terms())

    def _terms(self) -> Iterator[tuple[str, str]]:
        for term in self._selector.split(","):
            key, _, value = term.partition("=")
            yield key, value

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
