"""Reads and writes of stored objects with validation, admission, preconditions and graceful deletion."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.defaults import admit_pod, fill, fill_secret, name_suffix, new_uid
from jobyard.demo.fake_kubernetes.errors import JsonObject, Problem
from jobyard.demo.fake_kubernetes.pod_validation import pod_problems, pod_update_problems
from jobyard.demo.fake_kubernetes.quotas import Quotas
from jobyard.demo.fake_kubernetes.resources import Resource
from jobyard.demo.fake_kubernetes.storage import Key, Storage
from jobyard.demo.fake_kubernetes.validation import (
    bad_value,
    event_problems,
    lease_problems,
    metadata_problems,
    prohibited,
    secret_problems,
)
from jobyard.demo.fake_kubernetes.values import copy, merge_patch, timestamp, without_empty

# Reports what is wrong with an object, for example a check against the published schemas.
SchemaCheck = Callable[[JsonObject], list[str]]
MAX_GENERATED_PREFIX = 58
_FIXED_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Registry:
    def __init__(
        self,
        storage: Storage,
        clock: Callable[[], float],
        rng: random.Random,
        schema_check: SchemaCheck | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._rng = rng
        self._schema_check = schema_check
        self.quotas = Quotas(storage)

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject:
        """The stored object itself; callers outside the cluster are given a copy."""
        item = self._storage.get(resource.plural, (namespace, name))
        if item is None:
            raise errors.not_found(resource.plural, name, resource.group)
        return item

    def create(self, resource: Resource, namespace: str, body: Any, *, dry_run: bool = False) -> JsonObject:
        item = self._decode(resource, namespace, body)
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.error(500, "", "resourceVersion should not be set on objects to be created")
        self._require_namespace(resource, namespace)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:MAX_GENERATED_PREFIX] + name_suffix(self._rng)
        if resource.namespaced:
            metadata["namespace"] = namespace
        for field in (*_FIXED_METADATA, "selfLink", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = new_uid(self._rng)
        metadata["creationTimestamp"] = timestamp(self._clock())
        fill(resource.plural, item)
        if resource.plural == "pods":
            metadata["generation"] = 1
            self._admit_pod(item, namespace)
        if resource.plural == "namespaces":
            metadata["labels"]["kubernetes.io/metadata.name"] = metadata.get("name", "")
        self._validate(resource, item, None)
        key = (namespace, metadata["name"])
        existing = self._storage.get(resource.plural, key)
        if existing is not None:
            terminating = "deletionTimestamp" in existing["metadata"]
            raise errors.already_exists(resource.plural, key[1], resource.group, terminating=terminating)
        if resource.namespaced:
            self.quotas.check(resource.plural, item)
        return item if dry_run else self._stored(resource, key, item)

    def _stored(self, resource: Resource, key: Key, item: JsonObject) -> JsonObject:
        item = self._storage.put(resource.plural, key, item)
        # Admission counts a new object before the request is answered; deletions are counted later.
        if resource.namespaced:
            self.quotas.recalculate(key[0])
        return self._storage.get(resource.plural, key) or item

    def _decode(self, resource: Resource, namespace: str, body: Any) -> JsonObject:
        if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
            raise errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
        item = copy(body)
        version, kind = item.setdefault("apiVersion", resource.api_version), item.setdefault("kind", resource.kind)
        if version != resource.api_version:
            expected = f"does not match the expected API version ({resource.api_version})"
            raise errors.bad_request(f"the API version in the data ({version}) {expected}")
        if kind != resource.kind:
            message = (
                f'{kind} in version "{version}" cannot be handled as a {resource.kind}: converting is not supported'
            )
            raise errors.bad_request(message)
        if item.setdefault("metadata", {}).get("namespace") not in {None, "", namespace}:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if self._schema_check is not None and (found := self._schema_check(item)):
            shown = f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}'
            raise errors.bad_request(f"{shown}: strict decoding error: {', '.join(found)}")
        decoded: JsonObject = without_empty(item)
        return decoded

    def _require_namespace(self, resource: Resource, namespace: str) -> None:
        if not resource.namespaced:
            return
        found = self._storage.get("namespaces", ("", namespace))
        if found is None:
            raise errors.not_found("namespaces", namespace)
        if "deletionTimestamp" in found["metadata"]:
            cause = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource.plural, "", cause, resource.group)

    def _admit_pod(self, pod: JsonObject, namespace: str) -> None:
        spec = pod["spec"]
        account_name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account_name
        account = self._storage.get("serviceaccounts", (namespace, account_name))
        if account is None:
            cause = f"error looking up service account {namespace}/{account_name}"
            cause += f': serviceaccount "{account_name}" not found'
            raise errors.forbidden("pods", pod["metadata"].get("name", ""), cause)
        admit_pod(pod, account, self._rng)

    def _validate(self, resource: Resource, item: JsonObject, before: JsonObject | None) -> None:
        problems: list[Problem] = metadata_problems(item["metadata"], namespace_name=resource.plural == "namespaces")
        match resource.plural:
            case "pods":
                problems += pod_problems(item)
                problems += pod_update_problems(item, before) if before is not None else []
            case "secrets":
                problems += secret_problems(item, before)
            case "leases":
                problems += lease_problems(item)
            case "events":
                problems += event_problems(item)
        if problems:
            raise errors.invalid(resource.kind, item["metadata"].get("name", ""), problems, resource.group)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        *,
        status: bool = False,
        dry_run: bool = False,
    ) -> JsonObject:
        item = self._decode(resource, namespace, body)
        self._require_name(item, name)
        before = self._storage.get(resource.plural, (namespace, name))
        if before is None and resource.create_on_update:
            return self.create(resource, namespace, item, dry_run=dry_run)
        before = self.get(resource, namespace, name)
        if not item["metadata"].get("resourceVersion") and resource.conditional_update:
            problem = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource.kind, name, [problem], resource.group)
        return self._replace(resource, item, before, status=status, dry_run=dry_run)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        status: bool = False,
        dry_run: bool = False,
    ) -> JsonObject:
        """Apply a JSON merge patch."""
        if not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: json: cannot unmarshal a non-object into a JSON object")
        before = self.get(resource, namespace, name)
        item = self._decode(resource, namespace, merge_patch(before, copy(patch)))
        self._require_name(item, name)
        return self._replace(resource, item, before, status=status, dry_run=dry_run)

    @staticmethod
    def _require_name(item: JsonObject, name: str) -> None:
        if item["metadata"].setdefault("name", name) != name:
            given = item["metadata"]["name"]
            raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")

    def _replace(
        self, resource: Resource, item: JsonObject, before: JsonObject, *, status: bool, dry_run: bool
    ) -> JsonObject:
        name, old = before["metadata"]["name"], before["metadata"]
        metadata = item["metadata"]
        if metadata.get("uid") not in {None, "", old["uid"]}:
            cause = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old['uid']}"
            raise errors.conflict(resource.plural, name, cause, resource.group)
        if metadata.get("resourceVersion") not in {None, "", old["resourceVersion"]}:
            raise errors.modified_meanwhile(resource.plural, name, resource.group)
        for field in _FIXED_METADATA:
            metadata.pop(field, None)
            if field in old:
                metadata[field] = old[field]
        metadata["namespace"] = old.get("namespace", "")
        if not resource.namespaced:
            metadata.pop("namespace")
        self._separate_status(resource, item, before, status=status)
        if resource.plural == "secrets":
            fill_secret(item)
        self._check_finalizers(resource, item, before)
        self._validate(resource, item, before)
        metadata["resourceVersion"] = old["resourceVersion"]
        if item == before or dry_run:
            return item
        if resource.plural == "pods" and item["spec"] != before["spec"]:
            metadata["generation"] = metadata.get("generation", 1) + 1
        return self.store(resource, item)

    @staticmethod
    def _separate_status(resource: Resource, item: JsonObject, before: JsonObject, *, status: bool) -> None:
        """A plain update cannot change the status, and an update of the status changes nothing else that matters."""
        kept = "spec" if status else "status"
        if resource.has_status:
            item.pop(kept, None)
            if kept in before:
                item[kept] = copy(before[kept])
        if status:
            item["metadata"].pop("ownerReferences", None)
            if "ownerReferences" in before["metadata"]:
                item["metadata"]["ownerReferences"] = copy(before["metadata"]["ownerReferences"])

    @staticmethod
    def _check_finalizers(resource: Resource, item: JsonObject, before: JsonObject) -> None:
        if "deletionTimestamp" not in before["metadata"]:
            return
        old = before["metadata"].get("finalizers") or []
        if added := [each for each in item["metadata"].get("finalizers") or [] if each not in old]:
            listed = ", ".join(f'"{each}"' for each in added)
            message = "no new finalizers can be added if the object is being deleted, found new finalizers "
            problem = prohibited("metadata.finalizers", f"{message}[]string{{{listed}}}")
            raise errors.invalid(resource.kind, before["metadata"]["name"], [problem], resource.group)

    def store(self, resource: Resource, item: JsonObject) -> JsonObject:
        """Write a new version, or remove the object if only finalizers kept it."""
        metadata = item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        stored = self._storage.put(resource.plural, key, item)
        waiting = metadata.get("finalizers") or (resource.plural == "namespaces" and item["spec"].get("finalizers"))
        if "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds") and not waiting:
            return self._storage.remove(resource.plural, key)
        if resource.plural == "resourcequotas":
            self.quotas.recalculate(key[0])
            return self._storage.get(resource.plural, key) or stored
        return stored
