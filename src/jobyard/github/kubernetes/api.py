"""What the launcher needs of the Kubernetes API, as a protocol. `kubernetes.client` implements it over HTTP.

Objects are the plain dictionaries of the API. KubernetesError means that the API server answered with an error,
its subclass KubernetesUnavailable that it did not answer in time: then a change may have taken effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from jobyard.errors import JobyardError

Object: TypeAlias = dict[str, Any]
Resource: TypeAlias = Literal["pods", "secrets", "leases", "resourcequotas"]

NOT_FOUND, CONFLICT, GONE = 404, 409, 410


class KubernetesError(JobyardError):
    """The Kubernetes API answered with an error."""

    code = "kubernetes_error"

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message or reason or f"HTTP status {status}")
        self.status = status
        self.reason = reason  # in the API's words: AlreadyExists, Forbidden, Invalid, ...
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        if self.status == CONFLICT:
            return self.reason != "AlreadyExists"
        return self.status in {0, 401, 408, GONE, 425, 429} or self.status >= 500

    @property
    def may_have_taken_effect(self) -> bool:
        return self.status >= 500


class KubernetesUnavailable(KubernetesError):
    """The Kubernetes API did not answer in time, or the connection failed."""

    code = "kubernetes_unavailable"

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(0, "Unavailable", message)
        self.was_sent = was_sent  # False: the request never reached the server

    @property
    def may_have_taken_effect(self) -> bool:
        return self.was_sent


class ObjectList(NamedTuple):
    items: list[Object]
    resource_version: str


class WatchEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
    object: Object  # of an ERROR: a Status


class KubernetesApi(Protocol):
    """Every method has a deadline of its own and raises KubernetesError."""

    async def close(self) -> None: ...

    async def list(self, resource: Resource, namespace: str, label_selector: str = "") -> ObjectList:
        """All objects in one consistent state, never from a cache of the server."""

    def watch(
        self, resource: Resource, namespace: str, resource_version: str, label_selector: str, timeout_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Changes after `resource_version`, with bookmarks. Entered once the server has accepted the watch.

        The iterator ends after about `timeout_seconds`, and raises KubernetesUnavailable when the connection fails
        before. An expired version raises KubernetesError with status 410, or is an ERROR event with that code.
        """

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Read one object, never from a cache of the server; status 404 if it does not exist."""

    async def create(self, resource: Resource, namespace: str, body: Object, *, dry_run: bool = False) -> Object:
        """Create the object and return it as stored. A dry run validates it strictly and stores nothing."""

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        """Delete the object; with `uid`, status 409 if the object of that name is another one."""

    async def patch(self, resource: Resource, namespace: str, name: str, changes: Object) -> Object:
        """Apply a JSON merge patch and return the object as stored."""

    async def self_subject_access_review(self, namespace: str, verb: str, resource: str) -> bool:
        """Whether the caller may do this."""

    async def token_review(self, token: str, audiences: Sequence[str] = ()) -> Object:
        """The status of a TokenReview: `authenticated`, `user`, `audiences`, `error`."""
