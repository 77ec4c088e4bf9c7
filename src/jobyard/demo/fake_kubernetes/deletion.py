"""Deletion: grace periods, finalizers, preconditions and propagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.registry import Registry
from jobyard.demo.fake_kubernetes.resources import Resource
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import copy, timestamp

_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


class Deletion:
    def __init__(self, storage: Storage, registry: Registry, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._registry = registry
        self._clock = clock

    def delete(self, resource: Resource, namespace: str, name: str, options: Any = None) -> JsonObject:
        """Delete an object, or mark it for deletion; the response body is returned."""
        options = options or {}
        if not isinstance(options, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type DeleteOptions)")
        before = self._registry.get(resource, namespace, name)
        self._check_preconditions(resource, before, options.get("preconditions") or {})
        item = copy(before)
        self._add_propagation(item, options)
        grace = self._grace_seconds(resource, item, options)
        remaining = before["metadata"].get("deletionGracePeriodSeconds")
        again = "deletionTimestamp" in before["metadata"]
        if options.get("dryRun"):
            return self._response(resource, item)
        if again and grace >= (remaining or 0) and item == before and not self._removable(item, grace):
            return self._response(resource, item)
        if not again or grace < (remaining or 0):
            item["metadata"]["deletionTimestamp"] = timestamp(self._clock() + grace)
            item["metadata"]["deletionGracePeriodSeconds"] = grace
        if resource.plural == "namespaces":
            item["status"] = {"phase": "Terminating"}
        if self._removable(item, grace) and resource.plural != "namespaces":
            return self._response(resource, self._storage.remove(resource.plural, (namespace, name)))
        return self._response(resource, self._registry.store(resource, item))

    @staticmethod
    def _removable(item: JsonObject, grace: int) -> bool:
        return grace == 0 and not item["metadata"].get("finalizers")

    @staticmethod
    def _check_preconditions(resource: Resource, item: JsonObject, preconditions: JsonObject) -> None:
        metadata = item["metadata"]
        for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = preconditions.get(field)
            if wanted is not None and wanted != metadata[field]:
                cause = (
                    f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {metadata[field]}"
                )
                raise errors.conflict(resource.plural, metadata["name"], cause, resource.group)

    @staticmethod
    def _add_propagation(item: JsonObject, options: JsonObject) -> None:
        finalizer = _PROPAGATION_FINALIZERS.get(options.get("propagationPolicy") or "")
        finalizers = item["metadata"].get("finalizers") or []
        if finalizer and finalizer not in finalizers:
            item["metadata"]["finalizers"] = [*finalizers, finalizer]

    @staticmethod
    def _grace_seconds(resource: Resource, item: JsonObject, options: JsonObject) -> int:
        if resource.plural != "pods":
            return 0
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = item["spec"].get("terminationGracePeriodSeconds", 30)
        # No kubelet has to stop anything for a pod that has no node or that has ended.
        if not item["spec"].get("nodeName") or item["status"].get("phase") in {"Succeeded", "Failed"}:
            return 0
        return 1 if grace < 0 else int(grace)

    @staticmethod
    def _response(resource: Resource, item: JsonObject) -> JsonObject:
        metadata = item["metadata"]
        if resource.returns_deleted or metadata.get("finalizers"):
            return item
        details = {**errors.identify(resource.plural, metadata["name"], resource.group), "uid": metadata["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
