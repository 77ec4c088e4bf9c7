"""Mounted files of one pod, refreshed as late as a kubelet does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jobyard.demo.fake_kubernetes.access import Tokens
from jobyard.demo.fake_kubernetes.container import field_value, secret_files
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.storage import Change, Storage

# The kubelet renews a token after this part of its life.
_RENEW_TOKEN_AFTER = 0.8


class _Issued(NamedTuple):
    token: str
    renew_at: float


class Volumes:
    """The files of a pod's volumes.

    A secret is read when the pod is mounted, then again at every periodic sync and whenever the pod object changes.
    """

    def __init__(
        self,
        storage: Storage,
        tokens: Tokens,
        clock: Callable[[], float],
        get_pod: Callable[[], JsonObject],
        sync_seconds: float,
    ) -> None:
        self._storage = storage
        self._tokens = tokens
        self._clock = clock
        self._get_pod = get_pod
        self._sync_seconds = sync_seconds
        self._mounted_at = clock()
        self._synced_revision = 0
        self._secrets: dict[str, JsonObject | None] = {}
        self._changed: dict[str, Change] = {}
        self._issued: dict[str, _Issued] = {}

    def mount(self) -> None:
        self._mounted_at = self._clock()
        namespace = self._get_pod()["metadata"]["namespace"]
        for reference in self._references():
            name = _secret_name(reference)
            self._secrets[name] = self._storage.get("secrets", (namespace, name))
        self.sync()

    def sync(self) -> None:
        """A change of the pod makes the kubelet refresh its volumes at once."""
        self._synced_revision = self._storage.revision

    def secret_changed(self, change: Change) -> None:
        self._changed[change.key[1]] = change

    def read(self, container: JsonObject, path: str) -> bytes | None:
        """The content of a file in a container; None if it does not exist (yet)."""
        mounts = sorted(container.get("volumeMounts") or [], key=lambda mount: -len(mount["mountPath"]))
        for mount in mounts:
            root = mount["mountPath"].rstrip("/")
            if mount.get("subPath") and path == root:
                return self._files(mount["name"]).get(mount["subPath"])
            if path.startswith(f"{root}/"):
                return self._files(mount["name"]).get(path[len(root) + 1 :])
        return None

    def _files(self, volume_name: str) -> dict[str, bytes]:
        pod = self._get_pod()
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == volume_name)
        if reference := volume.get("secret"):
            return secret_files(self._secret(reference), reference.get("items"))
        if reference := volume.get("downwardAPI"):
            return self._downward(pod, reference)
        files: dict[str, bytes] = {}
        for source in (volume.get("projected") or {}).get("sources") or []:
            if secret := source.get("secret"):
                files |= secret_files(self._secret(secret), secret.get("items"))
            elif downward := source.get("downwardAPI"):
                files |= self._downward(pod, downward)
            elif token := source.get("serviceAccountToken"):
                files[token["path"]] = self._token(pod, volume_name, token).encode()
        return files

    @staticmethod
    def _downward(pod: JsonObject, source: JsonObject) -> dict[str, bytes]:
        items = [item for item in source.get("items") or [] if item.get("fieldRef")]
        return {item["path"]: field_value(pod, item["fieldRef"]["fieldPath"]).encode() for item in items}

    def _token(self, pod: JsonObject, volume: str, source: JsonObject) -> str:
        key = f"{volume}/{source['path']}"
        issued = self._issued.get(key)
        if issued is None or issued.renew_at <= self._clock():
            seconds = source.get("expirationSeconds") or 3600
            token = self._tokens.issue(pod, source.get("audience"), seconds)
            issued = self._issued[key] = _Issued(token, self._clock() + seconds * _RENEW_TOKEN_AFTER)
        return issued.token

    def _secret(self, reference: JsonObject) -> JsonObject | None:
        """The secret as it was at the last sync of the kubelet."""
        name = _secret_name(reference)
        change = self._changed.get(name)
        if change is not None and self._is_synced(change):
            # Files of a deleted secret stay, unless the reference is optional.
            if change.after is not None or reference.get("optional"):
                self._secrets[name] = change.after
            del self._changed[name]
        return self._secrets.get(name)

    def _is_synced(self, change: Change) -> bool:
        if change.revision <= self._synced_revision or not self._sync_seconds:
            return True
        periods = math.floor((self._clock() - self._mounted_at) / self._sync_seconds)
        return change.at < self._mounted_at + periods * self._sync_seconds

    def _references(self) -> Iterator[JsonObject]:
        for volume in self._get_pod()["spec"].get("volumes") or []:
            if "secret" in volume:
                yield volume["secret"]
            for source in (volume.get("projected") or {}).get("sources") or []:
                if "secret" in source:
                    yield source["secret"]


def _secret_name(reference: JsonObject) -> str:
    return str(reference.get("secretName") or reference.get("name"))
