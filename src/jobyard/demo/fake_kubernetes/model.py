"""The fake API server without sockets: requests as coroutines, watches as asynchronous iterators."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.access import Tokens, User, authorize, review_access
from jobyard.demo.fake_kubernetes.cluster import Cluster
from jobyard.demo.fake_kubernetes.container import RunContainer
from jobyard.demo.fake_kubernetes.controllers import Controllers
from jobyard.demo.fake_kubernetes.deletion import Deletion
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.faults import ApiFault, Faults, PodPlan
from jobyard.demo.fake_kubernetes.listing import Page, list_objects, parse_revision
from jobyard.demo.fake_kubernetes.nodes import Node
from jobyard.demo.fake_kubernetes.pod_worker import PodWorker
from jobyard.demo.fake_kubernetes.registry import Registry, SchemaCheck
from jobyard.demo.fake_kubernetes.requests import perform
from jobyard.demo.fake_kubernetes.resources import Resource, find
from jobyard.demo.fake_kubernetes.selectors import Matcher, field_matcher, label_matcher
from jobyard.demo.fake_kubernetes.settings import Settings
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import copy
from jobyard.demo.fake_kubernetes.watching import Watch, WatchOptions, gone

_VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-08-27T00:00:00Z",
    "goVersion": "go1.24",
    "compiler": "gc",
    "platform": "linux/amd64",
}


class FakeKubernetes:
    """A cluster in memory.

    Every method that a client calls is a coroutine that passes through the faults and raises `ApiError` (a response
    with a Status body) or `ConnectionLostError` (no response). `user` None is the administrator.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        run_container: RunContainer | None = None,
        faults: Faults | None = None,
        settings: Settings | None = None,
        nodes: Sequence[Node] = (),
        namespaces: tuple[str, ...] = ("default",),
        plan_pod: Callable[[JsonObject, random.Random], PodPlan] | None = None,
        tokens: Mapping[str, User] | None = None,
        schema_check: SchemaCheck | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self.settings = settings or Settings()
        self._rng = rng or random.Random(0)
        self._plan_pod = plan_pod
        self.storage = Storage(clock, self.settings.history_seconds)
        self._registry = Registry(self.storage, clock, self._rng, schema_check)
        self._deletion = Deletion(self.storage, self._registry, clock)
        self._controllers = Controllers(self.storage, self._registry, self._deletion, self.settings)
        self.tokens = Tokens(self.storage, clock, self._rng)
        for token, user in (tokens or {}).items():
            self.tokens.add(token, user)
        self.cluster = Cluster(
            storage=self.storage,
            deletion=self._deletion,
            tokens=self.tokens,
            settings=self.settings,
            nodes=nodes or [Node(name=f"node-{number}") for number in (1, 2, 3)],
            clock=clock,
            rng=self._rng,
            plan_pod=self._plan,
            run_container=run_container,
        )
        self.ready = True
        self._watches: dict[Watch, None] = {}
        for namespace in namespaces:
            self._registry.create(find("namespaces"), "", {"metadata": {"name": namespace}})

    def _plan(self, pod: JsonObject) -> PodPlan:
        if self._plan_pod is not None:
            return self._plan_pod(pod, self._rng)
        return self.faults.pods.draw(self._rng, self.faults.plan)

    async def close(self) -> None:
        """Stop the controllers, the containers and every watch."""
        for watch in tuple(self._watches):
            watch.close()
        self._controllers.close()
        await self.cluster.close()

    def version(self) -> JsonObject:
        return dict(_VERSION)

    # ---- requests ----

    async def get(self, plural: str, namespace: str | None, name: str, *, user: User | None = None) -> JsonObject:
        resource = find(plural)
        authorize(user, "get", resource, namespace, name, "")
        return await self._request("get", resource, lambda: self._registry.get(resource, namespace or "", name))

    async def list(
        self,
        plural: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        user: User | None = None,
    ) -> JsonObject:
        """List objects; `namespace` None lists all namespaces."""
        resource = find(plural)
        authorize(user, "list", resource, namespace, "", "")
        wanted = _matcher(plural, label_selector, field_selector)
        page = Page(limit, continue_token, resource_version, resource_version_match)
        faults = self._faults("list", resource)
        kinds = {fault.kind: fault for fault in faults}
        lag = self._rng.randint(1, kinds["stale_list"].revisions) if "stale_list" in kinds else 0
        matching: Matcher = (lambda _: False) if "empty_list" in kinds else wanted
        where = namespace if resource.namespaced else None

        def read() -> JsonObject:
            return list_objects(self.storage, resource, where, matching, page, lag=lag, token_gone="gone" in kinds)

        return copy(await perform(faults, read, self._rng))

    async def create(
        self,
        plural: str,
        namespace: str | None,
        body: Any,
        *,
        dry_run: bool = False,
        user: User | None = None,
    ) -> JsonObject:
        resource = find(plural)
        authorize(user, "create", resource, namespace, _name_of(body), "")

        def write() -> JsonObject:
            if resource.review:
                return self._review(resource, body, user)
            return self._registry.create(resource, namespace or "", body, dry_run=dry_run)

        return await self._request("create", resource, write)

    async def update(
        self,
        plural: str,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        user: User | None = None,
    ) -> JsonObject:
        resource = self._writable(plural, subresource)
        authorize(user, "update", resource, namespace, name, subresource)
        return await self._request(
            "update",
            resource,
            lambda: self._registry.update(
                resource, namespace or "", name, body, status=bool(subresource), dry_run=dry_run
            ),
        )

    async def patch(
        self,
        plural: str,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        user: User | None = None,
    ) -> JsonObject:
        """Apply a JSON merge patch."""
        resource = self._writable(plural, subresource)
        authorize(user, "patch", resource, namespace, name, subresource)
        return await self._request(
            "patch",
            resource,
            lambda: self._registry.patch(
                resource, namespace or "", name, patch, status=bool(subresource), dry_run=dry_run
            ),
        )

    async def delete(
        self, plural: str, namespace: str | None, name: str, options: Any = None, *, user: User | None = None
    ) -> JsonObject:
        """Delete an object; `options` is a DeleteOptions object."""
        resource = find(plural)
        authorize(user, "delete", resource, namespace, name, "")
        return await self._request(
            "delete", resource, lambda: self._deletion.delete(resource, namespace or "", name, options)
        )

    async def delete_collection(
        self,
        plural: str,
        namespace: str,
        options: Any = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        user: User | None = None,
    ) -> JsonObject:
        resource = find(plural)
        authorize(user, "deletecollection", resource, namespace, "", "")
        wanted = _matcher(plural, label_selector, field_selector)

        def remove() -> JsonObject:
            found = list_objects(self.storage, resource, namespace, wanted, Page())
            for item in found["items"]:
                self._deletion.delete(resource, namespace, item["metadata"]["name"], options)
            return found

        return await self._request("deletecollection", resource, remove)

    @staticmethod
    def _writable(plural: str, subresource: str) -> Resource:
        resource = find(plural)
        if subresource and (subresource != "status" or not resource.has_status):
            raise errors.unknown_path()
        return resource

    def _review(self, resource: Resource, body: Any, user: User | None) -> JsonObject:
        if not isinstance(body, dict) or not isinstance(body.get("spec"), dict):
            raise errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
        tokens = resource.plural == "tokenreviews"
        status = self.tokens.review_token(body) if tokens else review_access(user, body)
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"creationTimestamp": None},
            "spec": body["spec"],
            "status": status,
        }

    # ---- watches ----

    async def open_watch(
        self,
        plural: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        allow_bookmarks: bool = False,
        timeout_seconds: float | None = None,
        send_initial_events: bool = False,
        user: User | None = None,
    ) -> Watch:
        """Start a watch; errors that come as an HTTP status are raised here."""
        resource = find(plural)
        authorize(user, "watch", resource, namespace, "", "")
        parse_revision(resource_version)
        faults = self._faults("watch", resource)
        kinds = {fault.kind: fault for fault in faults}
        options = WatchOptions(
            namespace=namespace if resource.namespaced else None,
            wanted=_matcher(plural, label_selector, field_selector),
            revision=resource_version,
            bookmarks=allow_bookmarks,
            timeout_seconds=timeout_seconds,
            send_initial_events=send_initial_events,
            bookmark_seconds=self.settings.bookmark_seconds,
            lag_seconds=self.faults.watch_lag_seconds,
            cut_after=self._rng.uniform(0, kinds["cut"].seconds) if "cut" in kinds else None,
            silent_after=self._rng.uniform(0, kinds["silent"].seconds) if "silent" in kinds else None,
            max_buffered=self.settings.max_buffered_events,
        )

        def start() -> Watch:
            exact = resource_version not in {"", "0"} and not send_initial_events
            if "gone" in kinds or (exact and self.storage.changes_after(plural, int(resource_version)) is None):
                options.gone = True
                if self._gone_as_response():
                    raise gone(resource_version, self.storage, resource)
            watch = Watch(self.storage, resource, options, self._rng)
            self._watches[watch] = None
            return watch

        return await perform(faults, start, self._rng)

    def _gone_as_response(self) -> bool:
        variant = self.settings.gone_variant
        return variant == "http" or (variant == "random" and self._rng.random() < 0.5)

    async def watch(
        self, plural: str, namespace: str | None = None, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        """The events of a watch; the options are those of `open_watch`."""
        watch = await self.open_watch(plural, namespace, **options)
        try:
            async for event in watch:
                yield event
        finally:
            self.close_watch(watch)

    def close_watch(self, watch: Watch) -> None:
        watch.close()
        self._watches.pop(watch, None)

    # ---- faults and control ----

    def inject(self, fault: ApiFault) -> None:
        self.faults.api.append(fault)

    def cut_watches(self) -> None:
        """Break the connection of every open watch, in the middle of a line."""
        for watch in tuple(self._watches):
            watch.cut()

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    @property
    def container_errors(self) -> Sequence[BaseException]:
        """Exceptions of injected containers, which the cluster sees as exit code 1."""
        return self.cluster.container_errors

    def compact(self, revision: int | None = None) -> None:
        """Forget the history, so that watches and continued lists from before are answered with 410."""
        self.storage.compact(revision)

    def worker(self, namespace: str, name: str) -> PodWorker:
        """The kubelet's worker of a pod that has a node; KeyError if there is none."""
        pod = self.storage.get("pods", (namespace, name))
        if pod is None:
            raise KeyError(f"{namespace}/{name}")
        return self.cluster.workers[pod["metadata"]["uid"]]

    def kill_container(
        self, namespace: str, name: str, container: str | None = None, exit_code: int = 137, reason: str | None = None
    ) -> None:
        """End the process of a container (default: the first one that is not an init container)."""
        self.worker(namespace, name).kill(container, exit_code, reason)

    def evict_pod(self, namespace: str, name: str) -> None:
        self.worker(namespace, name).evict()

    def delete_pod(self, namespace: str, name: str) -> None:
        """A third party deletes a pod; KeyError if it does not exist."""
        pod = self.storage.get("pods", (namespace, name))
        if pod is None:
            raise KeyError(f"{namespace}/{name}")
        self.cluster.delete_pod(pod)

    def lose_node(
        self, name: str, *, containers_survive: bool = False, vanish: bool = False, unknown_phase: bool = False
    ) -> None:
        self.cluster.loss.lose(name, containers_survive=containers_survive, vanish=vanish, unknown_phase=unknown_phase)

    def restore_node(self, name: str) -> None:
        self.cluster.loss.restore(name)

    def _faults(self, verb: str, resource: Resource) -> Sequence[ApiFault]:
        return self.faults.matching(verb, resource.plural, self._rng)

    async def _request(self, verb: str, resource: Resource, act: Callable[[], JsonObject]) -> JsonObject:
        return copy(await perform(self._faults(verb, resource), act, self._rng))


def _matcher(plural: str, label_selector: str, field_selector: str) -> Matcher:
    by_labels, by_fields = label_matcher(label_selector), field_matcher(plural, field_selector)
    return lambda item: by_labels(item) and by_fields(item)


def _name_of(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
