"""What a replica of the manager calls: its store, GitHub and Kubernetes. A crash can happen at any of these calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tests.github.simulation.scenario import TIMEOUTS, Effect
from tests.github.simulation.virtual_loop import VirtualLoop, owner

from jobyard.demo.fake_github import ConnectionLost
from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_github.calls import ApiRequest
from jobyard.demo.fake_kubernetes import ApiError, ConnectionLostError, FakeKubernetes
from jobyard.github.client import GitHubAccess
from jobyard.github.client.http import Http, Response, unavailable
from jobyard.github.kubernetes.api import KubernetesError, KubernetesUnavailable, ObjectList, WatchEvent
from jobyard.ports.store import Store

T = TypeVar("T")
KUBERNETES_DEADLINE = 15.0
# How long a request of a dead replica may still be under way. After half of the time-out `minted`, the manager
# concludes that a request was lost.
LATE_SECONDS = TIMEOUTS.minted / 2


class Boundary:
    """Counts calls; at the chosen one the replica dies. Between calls it does nothing that others could see."""

    def __init__(self, on_crash: Callable[[], None], rng: random.Random) -> None:
        self.calls = 0
        self.crash_at: int | None = None
        self.effect = Effect.NONE
        self.died = asyncio.Event()
        self._on_crash = on_crash
        self._rng = rng
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def is_dead(self) -> bool:
        return self.died.is_set()

    async def request(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        """A call over the network: once sent, it goes on without its sender."""
        return await self.call(self._sent, function, arguments, named)

    async def _sent(self, function: Callable[..., Awaitable[T]], arguments: Any, named: Any) -> T:
        return await asyncio.shield(self._detached(_run(function, arguments, named)))

    async def call(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        if self.is_dead:
            raise asyncio.CancelledError
        self.calls += 1
        is_last = self.crash_at is not None and self.calls >= self.crash_at
        if is_last and self.effect is not Effect.DONE:
            if self.effect is Effect.LATE:
                self._detached(_run(function, arguments, named, self._rng.uniform(0, LATE_SECONDS)))
            self._die()
        # What the call starts beyond the boundary, such as a container, does not die with the replica.
        token = owner.set(None)
        try:
            result = await function(*arguments, **named)
        finally:
            owner.reset(token)
        if self.is_dead:
            raise asyncio.CancelledError
        if is_last:
            self._die()
        return result

    def _detached(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        token = owner.set(None)
        try:
            task = asyncio.get_running_loop().create_task(work)
        finally:
            owner.reset(token)
        self._under_way.add(task)
        task.add_done_callback(self._arrived)
        return task

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # of a request without a sender: nothing is left that it could tell

    def _die(self) -> None:
        self.died.set()
        self._on_crash()
        raise asyncio.CancelledError


async def _run(function: Callable[..., Awaitable[T]], arguments: Any, named: Any, seconds: float = 0.0) -> T:
    if seconds:
        await asyncio.sleep(seconds)
    return await function(*arguments, **named)


class RealTimeStore:
    """A store for which virtual time stands still while a call is under way: its time-outs are of real time."""

    def __init__(self, store: Store, loop: VirtualLoop) -> None:
        self._store = store
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name.startswith("_"):
            return found
        call = self._wrapped(found)
        setattr(self, name, call)  # found without this method from now on
        return call

    def _wrapped(self, found: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        loop = self._loop

        async def in_real_time(*arguments: Any, **named: Any) -> Any:
            loop.calls_in_flight += 1
            try:
                return await found(*arguments, **named)
            finally:
                loop.calls_in_flight -= 1

        return in_real_time


class SimulatedStore(RealTimeStore):
    """A store as a replica sees it."""

    def __init__(self, store: Store, boundary: Boundary, loop: VirtualLoop) -> None:
        super().__init__(store, loop)
        self._boundary = boundary

    def _wrapped(self, found: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        in_real_time, boundary = super()._wrapped(found), self._boundary

        async def call(*arguments: Any, **named: Any) -> Any:
            return await boundary.call(in_real_time, *arguments, **named)

        return call


class SimulatedHttp(Http):
    """Requests of the production client, answered by the model without a socket."""

    def __init__(self, access: GitHubAccess, api: RestApi, boundary: Boundary) -> None:
        super().__init__(access)
        self._api = api
        self._boundary = boundary

    def open(self) -> Any:
        return None  # there is nothing to connect to

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        parts = urlsplit(url)
        request = ApiRequest(
            method=method,
            path=parts.path.removeprefix("/api/v3"),
            query=dict(parse_qsl(parts.query)),
            headers=headers,
            body=body,
        )
        try:
            response = await self._boundary.request(self._api.request, request)
        except ConnectionLost as error:
            raise unavailable(method, url, "connection lost") from error
        found = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status, found, response.body)


class SimulatedKubernetes:
    """The Kubernetes API in process, on the model."""

    def __init__(self, model: FakeKubernetes, boundary: Boundary) -> None:
        self._model = model
        self._boundary = boundary

    async def close(self) -> None: ...

    async def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        try:
            async with asyncio.timeout(KUBERNETES_DEADLINE):
                return await self._boundary.request(function, *arguments, **named)
        except ApiError as error:
            raise translated(error) from error
        except (ConnectionLostError, TimeoutError) as error:
            raise KubernetesUnavailable("no answer") from error

    async def list(self, resource: str, namespace: str, label_selector: str = "") -> ObjectList:
        found = await self._call(self._model.list, resource, namespace, label_selector=label_selector)
        return ObjectList(found["items"], found["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(
        self, resource: str, namespace: str, resource_version: str, label_selector: str, timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        watch = await self._call(
            self._model.open_watch,
            resource,
            namespace,
            label_selector=label_selector,
            resource_version=resource_version,
            allow_bookmarks=True,
            timeout_seconds=timeout_seconds,
        )

        async def events() -> AsyncIterator[WatchEvent]:
            try:
                async for event in watch:
                    yield WatchEvent(event["type"], event["object"])
            except ConnectionLostError as error:
                raise KubernetesUnavailable("the watch was cut") from error

        try:
            yield events()
        finally:
            self._model.close_watch(watch)

    async def get(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        return await self._call(self._model.get, resource, namespace, name)

    async def create(
        self, resource: str, namespace: str, body: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        return await self._call(self._model.create, resource, namespace, body, dry_run=dry_run)

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        options: dict[str, Any] = {} if uid is None else {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._call(self._model.delete, resource, namespace, name, options)

    async def patch(self, resource: str, namespace: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        return await self._call(self._model.patch, resource, namespace, name, changes)

    async def self_subject_access_review(self, namespace: str, verb: str, resource: str) -> bool:
        return True

    async def token_review(self, token: str, audiences: Sequence[str] = ()) -> dict[str, Any]:
        return {"authenticated": False}


def translated(error: ApiError) -> KubernetesError:
    body = error.body
    wait = (body.get("details") or {}).get("retryAfterSeconds")
    return KubernetesError(error.status_code, body.get("reason", ""), body.get("message", ""), wait)
