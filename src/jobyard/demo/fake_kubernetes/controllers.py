"""Controllers of the control plane: owner references, quotas, namespaces and ended pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from jobyard.demo.fake_kubernetes.deletion import Deletion
from jobyard.demo.fake_kubernetes.errors import ApiError, JsonObject
from jobyard.demo.fake_kubernetes.registry import Registry
from jobyard.demo.fake_kubernetes.resources import RESOURCES
from jobyard.demo.fake_kubernetes.settings import Settings
from jobyard.demo.fake_kubernetes.storage import Change, Key, Storage
from jobyard.demo.fake_kubernetes.values import copy

_STORED = [resource for resource in RESOURCES.values() if not resource.review]
_PLURAL_BY_KIND = {(resource.api_version, resource.kind): resource.plural for resource in _STORED}


class Controllers:
    def __init__(self, storage: Storage, registry: Registry, deletion: Deletion, settings: Settings) -> None:
        self._storage = storage
        self._registry = registry
        self._deletion = deletion
        self._settings = settings
        self._dependents: dict[str, dict[tuple[str, Key], None]] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        for resource in _STORED:
            storage.subscribe(resource.plural, self._changed)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _changed(self, change: Change) -> None:
        before, after = change.before, change.after
        self._index_owners(change)
        if after is not None and _owners(after) and (before is None or _owners(before) != _owners(after)):
            self._later("dependent", _uid(after), lambda: self._check_dependent(change.plural, change.key))
        item = after or before or {}
        deleted = after is None or "deletionTimestamp" in after["metadata"]
        if deleted and (_uid(item) in self._dependents or item["metadata"].get("finalizers")):
            self._later("owner", _uid(item), lambda: self._collect(change.plural, change.key, _uid(item)))
        if change.plural == "namespaces":
            self._namespace_changed(change)
        elif change.plural == "pods" and _is_ended(after) and not _is_ended(before):
            self._resync_quota(change.key[0])
            self._limit_ended_pods()
        elif after is None and change.plural != "resourcequotas":
            self._resync_quota(change.key[0])

    def _later(self, purpose: str, subject: str, action: Callable[[], None], seconds: float | None = None) -> None:
        """Run an action soon; while it waits, further requests for the same subject are one."""
        key = (purpose, subject)
        if key in self._timers:
            return
        delay = self._settings.garbage_collection_seconds if seconds is None else seconds

        def run() -> None:
            del self._timers[key]
            action()

        self._timers[key] = asyncio.get_running_loop().call_later(delay, run)

    # ---- owner references ----

    def _index_owners(self, change: Change) -> None:
        entry = (change.plural, change.key)
        for uid in _owners(change.before):
            self._dependents.get(uid, {}).pop(entry, None)
            if not self._dependents.get(uid):
                self._dependents.pop(uid, None)
        for uid in _owners(change.after):
            self._dependents.setdefault(uid, {})[entry] = None

    def _check_dependent(self, plural: str, key: Key) -> None:
        """Delete an object if all of its owners are gone; forget those owners that are."""
        item = self._storage.get(plural, key)
        if item is None:
            return
        references = item["metadata"].get("ownerReferences") or []
        present = [reference for reference in references if self._exists(reference, key[0])]
        if not references or len(present) == len(references):
            return
        if not present:
            self._delete(plural, key, item)
            return
        fresh = copy(item)
        fresh["metadata"]["ownerReferences"] = present
        self._registry.store(RESOURCES[plural], fresh)

    def _exists(self, reference: JsonObject, namespace: str) -> bool:
        plural = _PLURAL_BY_KIND.get((reference["apiVersion"], reference["kind"]))
        if plural is None:
            return True
        where = namespace if RESOURCES[plural].namespaced else ""
        owner = self._storage.get(plural, (where, reference["name"]))
        return owner is not None and owner["metadata"]["uid"] == reference["uid"]

    def _collect(self, plural: str, key: Key, uid: str) -> None:
        """Follow the deletion of an owner, by the propagation that its finalizers ask for."""
        owner = self._storage.get(plural, key)
        dependents = list(self._dependents.get(uid, {}))
        if owner is None or owner["metadata"]["uid"] != uid:
            for dependent_plural, dependent_key in dependents:
                self._check_dependent(dependent_plural, dependent_key)
            return
        finalizers = owner["metadata"].get("finalizers") or []
        if "orphan" in finalizers:
            for dependent_plural, dependent_key in dependents:
                self._drop_owner(dependent_plural, dependent_key, uid)
            self._drop_finalizer(plural, key, "orphan")
        elif "foregroundDeletion" in finalizers:
            for dependent_plural, dependent_key in dependents:
                if (item := self._storage.get(dependent_plural, dependent_key)) is not None:
                    self._delete(dependent_plural, dependent_key, item)
            if any(_blocks(self._storage.get(*dependent), uid) for dependent in dependents):
                self._later("owner", uid, lambda: self._collect(plural, key, uid))
            else:
                self._drop_finalizer(plural, key, "foregroundDeletion")

    def _drop_owner(self, plural: str, key: Key, uid: str) -> None:
        if (item := self._storage.get(plural, key)) is None:
            return
        fresh = copy(item)
        kept = [each for each in fresh["metadata"]["ownerReferences"] if each["uid"] != uid]
        fresh["metadata"]["ownerReferences"] = kept
        if not kept:
            del fresh["metadata"]["ownerReferences"]
        self._registry.store(RESOURCES[plural], fresh)

    def _drop_finalizer(self, plural: str, key: Key, finalizer: str) -> None:
        fresh = copy(self._storage.get(plural, key))
        if fresh is not None:
            kept = [each for each in fresh["metadata"]["finalizers"] if each != finalizer]
            fresh["metadata"]["finalizers"] = kept
            if not kept:
                del fresh["metadata"]["finalizers"]
            self._registry.store(RESOURCES[plural], fresh)

    def _delete(self, plural: str, key: Key, item: JsonObject) -> None:
        if "deletionTimestamp" in item["metadata"]:
            return
        options = {"propagationPolicy": "Background", "preconditions": {"uid": _uid(item)}}
        try:
            self._deletion.delete(RESOURCES[plural], *key, options)
        except ApiError as problem:
            if problem.status_code not in {404, 409}:
                raise

    # ---- quotas, ended pods, namespaces ----

    def _resync_quota(self, namespace: str) -> None:
        if not any(True for _ in self._storage.all("resourcequotas", namespace)):
            return
        seconds = self._settings.quota_resync_seconds
        if seconds:
            self._later("quota", namespace, lambda: self._registry.quotas.recalculate(namespace), seconds)
        else:
            self._registry.quotas.recalculate(namespace)

    def _limit_ended_pods(self) -> None:
        limit = self._settings.terminated_pod_threshold
        ended = [pod for pod in self._storage.all("pods") if _is_ended(pod)] if limit else []
        for pod in ended[: max(0, len(ended) - limit)]:
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._later("ended", _uid(pod), partial(self._delete, "pods", key, pod))

    def _namespace_changed(self, change: Change) -> None:
        item, name = change.after, change.key[1]
        if item is not None and change.before is None:
            account = {"metadata": {"name": "default"}}
            self._registry.create(RESOURCES["serviceaccounts"], name, account)
        elif item is not None and "deletionTimestamp" in item["metadata"]:
            seconds = self._settings.namespace_deletion_seconds
            self._later("namespace", name, lambda: self._empty_namespace(name), seconds)

    def _empty_namespace(self, name: str) -> None:
        remaining = False
        for resource in _STORED:
            for item in list(self._storage.all(resource.plural, name)) if resource.namespaced else []:
                self._delete(resource.plural, (name, item["metadata"]["name"]), item)
            remaining = remaining or (
                resource.namespaced and any(True for _ in self._storage.all(resource.plural, name))
            )
        if remaining:
            self._later("namespace", name, lambda: self._empty_namespace(name), 1.0)
        elif (stored := self._storage.get("namespaces", ("", name))) is not None:
            self._registry.store(RESOURCES["namespaces"], {**copy(stored), "spec": {}})


def _owners(item: JsonObject | None) -> list[str]:
    return [each["uid"] for each in (item or {"metadata": {}})["metadata"].get("ownerReferences") or []]


def _uid(item: JsonObject) -> str:
    return str(item["metadata"]["uid"])


def _is_ended(pod: JsonObject | None) -> bool:
    return pod is not None and pod["status"].get("phase") in {"Succeeded", "Failed"}


def _blocks(item: JsonObject | None, uid: str) -> bool:
    references = (item or {"metadata": {}})["metadata"].get("ownerReferences") or []
    return any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references)
