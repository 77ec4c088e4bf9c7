"""The Kubernetes API over HTTP: one connection pool, a deadline for each request, and credentials that may change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from jobyard.errors import ConfigurationError
from jobyard.github.kubernetes.api import (
    GONE,
    KubernetesError,
    KubernetesUnavailable,
    Object,
    ObjectList,
    Resource,
    WatchEvent,
)
from jobyard.github.kubernetes.credentials import Credentials
from jobyard.github.kubernetes.kubeconfig import ClusterAccess
from jobyard.github.kubernetes.tls import TlsMaterial, ssl_context

PAGE = 500
RESTARTS_OF_A_LIST = 3
# How much longer than the server's own timeout a watch waits for its next line.
WATCH_MARGIN_SECONDS = 15.0
# An object in etcd has at most 1.5 MB; a longer line is not an event.
LONGEST_LINE = 8 * 2**20
PATHS = {
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "resourcequotas": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
}
# A connection whose other end is gone fails after about 30 seconds, also when it only listens.
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
# Raised before anything was sent.
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


class KubernetesClient:
    def __init__(self, access: ClusterAccess, timeout_seconds: float = 15.0) -> None:
        self._access = access
        self._timeout = timeout_seconds
        self._http: httpx2.AsyncClient | None = None
        self._tls: TlsMaterial | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<KubernetesClient {self._access.server}>"

    async def close(self) -> None:
        http, self._http = self._http, None
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if http is not None:
            await http.aclose()

    # Objects

    async def list(self, resource: Resource, namespace: str, label_selector: str = "") -> ObjectList:
        for restart in range(RESTARTS_OF_A_LIST):
            try:
                return await self._pages(_path(resource, namespace), label_selector)
            except KubernetesError as error:
                if error.status != GONE or restart == RESTARTS_OF_A_LIST - 1:
                    raise
        raise AssertionError

    async def _pages(self, path: str, label_selector: str) -> ObjectList:
        items: list[Object] = []
        params = {"limit": str(PAGE)} | ({"labelSelector": label_selector} if label_selector else {})
        while True:
            page = await self._request("GET", path, params=params)
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, metadata.get("resourceVersion", ""))
            params["continue"] = metadata["continue"]

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self._request("GET", _path(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str, body: Object, *, dry_run: bool = False) -> Object:
        params = {"fieldManager": "jobyard"}
        if dry_run:
            params |= {"dryRun": "All", "fieldValidation": "Strict"}
        return await self._request("POST", _path(resource, namespace), params=params, body=body)

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", _path(resource, namespace, name), body=options)

    async def patch(self, resource: Resource, namespace: str, name: str, changes: Object) -> Object:
        return await self._request(
            "PATCH",
            _path(resource, namespace, name),
            params={"fieldManager": "jobyard"},
            body=changes,
            content_type="application/merge-patch+json",
        )

    # Reviews

    async def self_subject_access_review(self, namespace: str, verb: str, resource: str) -> bool:
        kind, attributes = "SelfSubjectAccessReview", {"namespace": namespace, "verb": verb, "resource": resource}
        group = PATHS.get(resource, "/api/v1").removeprefix("/apis/").partition("/")[0]
        if group:
            attributes["group"] = group
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {"resourceAttributes": attributes}}
        review = await self._request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool((review.get("status") or {}).get("allowed"))

    async def token_review(self, token: str, audiences: Sequence[str] = ()) -> Object:
        spec = {"token": token} | ({"audiences": [*audiences]} if audiences else {})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        review = await self._request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        return review.get("status") or {}

    # Watches

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str, resource_version: str, label_selector: str, timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        params = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout_seconds))),
            "labelSelector": label_selector,
        }
        timeout = httpx2.Timeout(self._timeout, read=timeout_seconds + WATCH_MARGIN_SECONDS)
        response = await self._send("GET", _path(resource, namespace), params=params, timeout=timeout, stream=True)
        try:
            yield _events(response)
        finally:
            with contextlib.suppress(httpx2.HTTPError):
                await response.aclose()

    # Requests

    async def _request(self, method: str, path: str, **options: Any) -> Object:
        if method != "GET":
            # The server gives up before this client does, so a request does not take effect long after it failed.
            options["params"] = {"timeout": f"{max(1, round(self._timeout))}s"} | options.get("params", {})
        response = await self._send(method, path, timeout=httpx2.Timeout(self._timeout + 1), **options)
        return _decode(response)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: httpx2.Timeout,
        params: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        stream: bool = False,
    ) -> httpx2.Response:
        """The response, if its status is a success. Rejected credentials are renewed once."""
        headers = {"Accept": "application/json", "User-Agent": "jobyard"}
        if body is not None:
            headers["Content-Type"] = content_type
        for refresh in (False, True):
            http, credentials = await self._connection(refresh)
            if credentials.token:
                headers["Authorization"] = f"Bearer {credentials.token}"
            request = http.build_request(
                method,
                path,
                params=params,
                headers=headers,
                content=None if body is None else msgspec.json.encode(body),
                timeout=timeout,
                extensions={"sni_hostname": self._access.server_name} if self._access.server_name else {},
            )
            response = await self._exchange(http, request, stream)
            if response.status_code != 401 or refresh:
                break
        if not response.is_success:
            raise _error(response)
        return response

    async def _exchange(self, http: httpx2.AsyncClient, request: httpx2.Request, stream: bool) -> httpx2.Response:
        where = f"{request.method} {request.url.path}"
        try:
            async with asyncio.timeout(self._timeout + 2):
                response = await http.send(request, stream=True)
                if not (stream and response.is_success):
                    try:
                        await response.aread()
                    finally:
                        await response.aclose()
                return response
        except (TimeoutError, httpx2.TimeoutException) as error:
            was_sent = not isinstance(error, UNSENT)
            text = f"{where}: no answer of {self._access.server} within {self._timeout:g} s"
            raise KubernetesUnavailable(text, was_sent=was_sent) from error
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            text = f"{where}: {self._access.server} cannot be reached: {error or type(error).__name__}"
            raise KubernetesUnavailable(text, was_sent=not isinstance(error, UNSENT)) from error

    async def _connection(self, refresh: bool) -> tuple[httpx2.AsyncClient, Credentials]:
        try:
            credentials = await self._access.source.credentials(refresh=refresh)
            tls = TlsMaterial(self._access.authority.read(), credentials.certificate, credentials.key)
            if self._http is None or tls != self._tls:
                self._connect(tls)
        except ConfigurationError as error:
            raise KubernetesUnavailable(str(error), was_sent=False) from error
        assert self._http is not None
        return self._http, credentials

    def _connect(self, tls: TlsMaterial) -> None:
        is_encrypted = self._access.server.startswith("https:")
        transport = httpx2.AsyncHTTPTransport(
            verify=ssl_context(tls, self._access.verifies) if is_encrypted else False,
            socket_options=KEEPALIVE,
            proxy=self._access.proxy,
        )
        if self._http is not None:
            self._close_later(self._http)
        self._http, self._tls = httpx2.AsyncClient(base_url=self._access.server, transport=transport), tls

    def _close_later(self, http: httpx2.AsyncClient) -> None:
        """Requests in flight with the old certificate may finish; its watches are opened again."""

        async def close() -> None:
            try:
                await asyncio.sleep(2 * self._timeout)
            finally:
                await http.aclose()

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _path(resource: Resource, namespace: str, name: str = "") -> str:
    """
    >>> _path("leases", "runners", "leader")
    '/apis/coordination.k8s.io/v1/namespaces/runners/leases/leader'
    """
    return f"{PATHS[resource]}/namespaces/{namespace}/{resource}" + (f"/{name}" if name else "")


async def _events(response: httpx2.Response) -> AsyncIterator[WatchEvent]:
    rest = b""
    try:
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    event = msgspec.json.decode(line)
                    yield WatchEvent(event["type"], event["object"])
            if len(rest) > LONGEST_LINE:
                raise KubernetesUnavailable(f"A line of the watch has more than {LONGEST_LINE} bytes")
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise KubernetesUnavailable(f"The watch was cut: {error or type(error).__name__}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise KubernetesUnavailable(f"The watch sent a line that is not an event: {error}") from error
    if rest.strip():
        raise KubernetesUnavailable("The watch was cut within an event")


def _decode(response: httpx2.Response) -> Object:
    try:
        found = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise KubernetesUnavailable(f"The answer to {response.request.method} {response.request.url.path} is not JSON")
    return found


def _error(response: httpx2.Response) -> KubernetesError:
    try:
        status = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if not isinstance(status, dict):  # of a proxy before the API server
        status = {"message": response.text[:200].strip()}
    details = status.get("details") or {}
    wait = response.headers.get("Retry-After", "")
    seconds = float(wait) if wait.isascii() and wait.isdigit() else details.get("retryAfterSeconds")
    message = status.get("message") or f"HTTP status {response.status_code}"
    return KubernetesError(response.status_code, status.get("reason") or "", message, seconds)
