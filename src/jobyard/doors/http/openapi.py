"""OpenAPI 3.1, made of the routes and of the types that they take and give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from jobyard.doors.http.problems import MEDIA_TYPE, Problem
from jobyard.doors.http.route import Route

VERSION = version("jobyard")
REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
PROBLEMS = {
    "400": "The body is not JSON.",
    "401": "No token, or one that is not known.",
    "403": "The role or the scope of the token does not allow it.",
    "404": "There is no such thing.",
    "409": "Its present state does not allow it.",
    "413": "The body is too large.",
    "415": "The body is not sent as JSON.",
    "422": "Something in the request is wrong; `errors` points at it.",
    "429": "Too many requests, or too many waiting jobs; see Retry-After.",
    "503": "The store is not available now; see Retry-After.",
}


def operation_id(route: Route) -> str:
    return route.handler.__name__


def types_of(routes: Sequence[Route]) -> list[Any]:
    found: list[Any] = [Problem]
    for route in routes:
        found += [each for each in (route.query, route.body, route.answer) if each is not None]
    return found


def schema_of(of: Any) -> dict[str, Any]:
    [schema], _ = msgspec.json.schema_components([of], ref_template=REFERENCE)
    return schema


def describe(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}
        for name, about in route.headers
    ]
    if route.query is not None:
        parameters += query_parameters(route.query)
    told: dict[str, Any] = {"parameters": parameters, "responses": responses(route)}
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema_of(route.body)}}}
    told["security"] = [] if route.permission is None else [{"token": []}]
    if route.permission is not None:
        told["x-permission"] = str(route.permission)
    return told


def query_parameters(shape: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([shape], ref_template=REFERENCE)
    properties: dict[str, Any] = components[shape.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in properties.items()]


def responses(route: Route) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if route.answer is not None:
        kind = "text/event-stream" if route.stays_open else "application/json"
        good["content"] = {kind: {"schema": {"type": "string"} if route.stays_open else schema_of(route.answer)}}
    content = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}}}
    told: dict[str, Any] = {str(route.status): good}
    for status, about in PROBLEMS.items():
        told[status] = {"description": about, "content": content}
    return told


def complete(app: FastAPI, routes: Sequence[Route]) -> None:
    """FastAPI knows the paths; the types are ours to add."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0")
            _, components = msgspec.json.schema_components(types_of(routes), ref_template=REFERENCE)
            parts = made.setdefault("components", {})
            parts["schemas"] = components
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's own documentation does it
