"""The REST paths of the Kubernetes API over the model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.access import User
from jobyard.demo.fake_kubernetes.control import control_routes
from jobyard.demo.fake_kubernetes.errors import ApiError, ConnectionLostError, JsonObject
from jobyard.demo.fake_kubernetes.model import FakeKubernetes
from jobyard.demo.fake_kubernetes.resources import Resource, find
from jobyard.demo.fake_kubernetes.watching import Watch

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}


class Target(NamedTuple):
    """What a path refers to; `name` empty is the collection, `namespace` None all namespaces."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


def create_app(model: FakeKubernetes) -> Starlette:
    routes = [*control_routes(model), Route("/{path:path}", KubernetesApi(model))]
    return Starlette(routes=routes)


def parse_path(path: str) -> Target:
    """Split a REST path.

    >>> parse_path("/api/v1/namespaces/ci/pods/a/status")[1:]
    ('ci', 'a', 'status')
    >>> parse_path("/api/v1/namespaces/ci").resource.plural
    'namespaces'
    """
    match path.strip("/").split("/"):
        case ["api", "v1", *rest]:
            group = ""
        case ["apis", group, "v1", *rest] if group:
            pass
        case _:
            raise errors.unknown_path()
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if not rest or not all(rest) or len(rest) > 3:
        raise errors.unknown_path()
    resource = find(rest[0], group)
    plural_only = namespace is None and resource.namespaced
    if (namespace is not None) is not resource.namespaced and not (plural_only and len(rest) == 1):
        raise errors.unknown_path()
    return Target(resource, namespace, *(rest[1:2] or [""]), *(rest[2:3] or [""]))


class KubernetesApi:
    """The ASGI application of everything below `/api`, `/apis` and the health paths."""

    def __init__(self, model: FakeKubernetes) -> None:
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        # The body is read, so the next message can only be the end of the connection.
        gone = asyncio.ensure_future(receive())
        work = asyncio.ensure_future(self._answer(request, body, send))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        except ConnectionLostError:
            await _abort(scope, gone)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        result: Response | Watch
        try:
            result = await self._handle(request, body)
        except ApiError as problem:
            headers = {"Retry-After": str(problem.retry_after)} if problem.retry_after else {}
            result = _respond(problem.status_code, msgspec.json.encode(problem.body), headers)
        if isinstance(result, Response):
            await result(request.scope, request.receive, send)
            return
        try:
            await _stream(result, send)
        finally:
            self._model.close_watch(result)

    async def _handle(self, request: Request, body: bytes) -> Response | Watch:
        path = request.url.path.rstrip("/")
        if path in {"/readyz", "/livez", "/healthz"}:
            ready = self._model.ready or path == "/livez"
            return Response("ok" if ready else "readyz check failed", 200 if ready else 500, media_type="text/plain")
        if path == "/version":
            return _json(200, self._model.version())
        user = self._authenticate(request)
        target = parse_path(path)
        query = request.query_params
        if request.method == "GET":
            return await self._read(target, query, user)
        return await self._write(request, target, body, user)

    def _authenticate(self, request: Request) -> User | None:
        if not self._model.tokens.required:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise errors.unauthorized()
        return self._model.tokens.authenticate(token.strip())

    async def _read(self, target: Target, query: Mapping[str, str], user: User | None) -> Response | Watch:
        resource, model = target.resource, self._model
        if resource.review:
            raise errors.method_not_allowed()
        if target.name:
            if target.subresource and not (target.subresource == "status" and resource.has_status):
                raise errors.unknown_path()
            return _json(200, await model.get(resource.plural, target.namespace, target.name, user=user))
        selectors = {
            "label_selector": query.get("labelSelector", ""),
            "field_selector": query.get("fieldSelector", ""),
            "resource_version": query.get("resourceVersion", ""),
        }
        if query.get("watch") in _TRUE:
            return await model.open_watch(
                resource.plural,
                target.namespace,
                **selectors,
                allow_bookmarks=query.get("allowWatchBookmarks") in _TRUE,
                timeout_seconds=_number(query, "timeoutSeconds") or None,
                send_initial_events=query.get("sendInitialEvents") in _TRUE,
                user=user,
            )
        found = await model.list(
            resource.plural,
            target.namespace,
            **selectors,
            limit=_number(query, "limit"),
            continue_token=query.get("continue", ""),
            resource_version_match=query.get("resourceVersionMatch", ""),
            user=user,
        )
        return _json(200, found)

    async def _write(self, request: Request, target: Target, body: bytes, user: User | None) -> Response:
        resource, namespace, name, subresource = target
        model, query = self._model, request.query_params
        dry_run = _dry_run(query)
        media_type = request.headers.get("content-type", _JSON).partition(";")[0].strip()
        match request.method:
            case "POST" if not name and (namespace is not None or not resource.namespaced):
                content = _decode(body, media_type, _JSON)
                made = await model.create(resource.plural, namespace, content, dry_run=dry_run, user=user)
                return _json(201, made)
            case "PUT" if name and not resource.review:
                content = _decode(body, media_type, _JSON)
                known = model.storage.get(resource.plural, (namespace or "", name)) is not None
                changed = await model.update(
                    resource.plural, namespace, name, content, subresource=subresource, dry_run=dry_run, user=user
                )
                return _json(200 if known else 201, changed)
            case "PATCH" if name and not resource.review:
                patch = _decode(body, media_type, _MERGE_PATCH)
                changed = await model.patch(
                    resource.plural, namespace, name, patch, subresource=subresource, dry_run=dry_run, user=user
                )
                return _json(200, changed)
            case "DELETE" if not resource.review and not subresource:
                return _json(200, await self._delete(target, query, _delete_options(query, body, media_type), user))
        raise errors.method_not_allowed()

    async def _delete(
        self, target: Target, query: Mapping[str, str], options: JsonObject, user: User | None
    ) -> JsonObject:
        resource, namespace, name, _ = target
        if name:
            return await self._model.delete(resource.plural, namespace, name, options, user=user)
        if namespace is None:
            raise errors.method_not_allowed()
        return await self._model.delete_collection(
            resource.plural,
            namespace,
            options,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            user=user,
        )


async def _stream(watch: Watch, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for event in watch:
            line = msgspec.json.encode(event) + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
    except ConnectionLostError as lost:
        await send({"type": "http.response.body", "body": lost.partial, "more_body": True})
        raise
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _abort(scope: Scope, gone: asyncio.Future[Any]) -> None:
    """Close the connection without a (complete) response; only the server that runs the app can do that."""
    abort = scope.get("state", {}).get("abort")
    if abort is None:
        raise ConnectionLostError
    # What was written so far must leave before the connection is reset.
    await asyncio.sleep(0.01)
    abort()
    await gone


def _json(status_code: int, content: JsonObject) -> Response:
    return _respond(status_code, msgspec.json.encode(content))


def _respond(status_code: int, content: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content, status_code, headers=headers, media_type=_JSON)


def _decode(body: bytes, media_type: str, expected: str) -> Any:
    if media_type != expected:
        raise errors.unsupported_media_type()
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError as problem:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {problem}") from None


def _delete_options(query: Mapping[str, str], body: bytes, media_type: str) -> JsonObject:
    options: JsonObject = {}
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = _number(query, "gracePeriodSeconds")
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if _dry_run(query):
        options["dryRun"] = ["All"]
    if body:
        content = _decode(body, media_type, _JSON)
        if not isinstance(content, dict):
            raise errors.bad_request("the object provided is unrecognized (must be of type DeleteOptions)")
        options = content
    return options


def _dry_run(query: Mapping[str, str]) -> bool:
    asked = query.get("dryRun", "")
    if asked not in {"", "All"}:
        message = f'Unsupported value: "{asked}": supported values: "All"'
        problem = errors.Problem("dryRun", "FieldValueNotSupported", message)
        raise errors.invalid("CreateOptions", "", [problem], "meta.k8s.io")
    return asked == "All"


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "0") or "0"
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
