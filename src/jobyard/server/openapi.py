"""OpenAPI 3.1 document, generated from the routes and their request and response types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobyard.api.schemas.descriptions import EXAMPLES, PARAMETERS, describe
from jobyard.api.schemas.jobs import Name
from jobyard.api.schemas.problems import Problem
from jobyard.api.schemas.running import ErrorEnvelope
from jobyard.server.idempotency import KEY
from jobyard.server.problems import ENVELOPE_PATH, MEDIA_TYPE
from jobyard.server.route import Route

VERSION = version("jobyard")
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
REFERENCE = "#/components/schemas/{name}"
DESCRIPTION = (
    "Submit jobs and read their results. Times are RFC 3339 in UTC, durations carry their unit in the name, errors are "
    "problem documents (RFC 9457) with a stable `code`. Unknown fields in requests are rejected; in responses, ignore "
    "those that you do not know."
)
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
PROBLEMS = {
    400: "The body is not JSON.",
    401: "The token is missing, wrong, revoked or expired.",
    403: "The role or the scope of the token does not allow this request.",
    404: "Not found, or out of the scope of the token.",
    409: "The current state of the resource does not allow this request.",
    410: "It existed, and does not exist any more.",
    413: "The body is too large.",
    415: "The Content-Type is not application/json.",
    422: "The request is invalid; `errors` points to the invalid fields.",
    429: "Too many requests, or too many waiting jobs; see Retry-After.",
    502: "GitHub did not answer, or refused the request.",
    503: "The store is not available; see Retry-After.",
}
Header = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[!#-~]([ -~]*[!#-~])?$")]
RETRY_AFTER = {"description": "Seconds to wait before the next request.", "schema": {"type": "integer", "minimum": 1}}


def document(routes: Sequence[Route], url: str = "/") -> dict[str, Any]:
    """`url`: the address of the server, as its callers see it."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})[route.method.lower()] = operation(route)
    add_links(routes, paths)
    _, components = msgspec.json.schema_components(types_of(routes), ref_template=REFERENCE)
    for name, schema in components.items():
        for field, of in schema.get("properties", {}).items():
            add_description(of, describe(name, field))
    return {
        "openapi": "3.1.0",
        "info": {"title": "jobyard", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": url, "description": "This server."}],
        "paths": paths,
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def add_description(schema: dict[str, Any], text: str | None) -> None:
    if text is not None:
        schema.setdefault("description", text)


def add_links(routes: Sequence[Route], paths: dict[str, dict[str, Any]]) -> None:
    """Link the response of POST /v1/jobs to every operation that takes the id of a job."""
    accepted = paths.get("/v1/jobs", {}).get("post", {}).get("responses", {}).get("202")
    if accepted is not None:
        accepted["links"] = {
            route.handler.__name__: {"operationId": route.handler.__name__, "parameters": {"id": "$response.body#/id"}}
            for route in routes
            if route.path.startswith("/v1/jobs/{id}")
        }


def types_of(routes: Sequence[Route]) -> list[Any]:
    found: list[Any] = [Problem, ErrorEnvelope]
    for route in routes:
        found += [each for each in (route.body, route.response) if each is not None]
    return found


def schema_of(of: Any) -> dict[str, Any]:
    [schema], _ = msgspec.json.schema_components([of], ref_template=REFERENCE)
    return schema


def operation(route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": parameters(route),
        "responses": responses(route),
        "security": [] if route.permission is None else [{"token": []}],
    }
    if route.permission is not None:
        described["x-permission"] = str(route.permission)
    if route.body is not None:
        content: dict[str, Any] = {"schema": schema_of(route.body)}
        example = EXAMPLES.get(getattr(route.body, "__name__", ""))
        if example is not None:
            content["example"] = example
        described["requestBody"] = {"required": needs_body(route), "content": {JSON: content}}
    if route.form:
        fields = {"type": "object", "properties": {name: {"type": "string"} for name in route.form}}
        described["requestBody"] = {"required": False, "content": {FORM: {"schema": fields}}}
    return described


def needs_body(route: Route) -> bool:
    """Whether the body is required: one whose fields are all optional may be omitted."""
    try:
        msgspec.json.decode(b"{}", type=route.body)
    except msgspec.ValidationError:
        return True
    return False


def parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "description": PARAMETERS[name], "schema": schema_of(Name)}
        for name in _PARAMETER.findall(route.path)
    ]
    found += [
        {"name": name, "in": "header", "required": False, "description": description, "schema": schema_of(Header)}
        for name, description in (*route.headers, *([KEY] if route.repeats_response else []))
    ]
    return found if route.query is None else found + query_parameters(route.query)


def query_parameters(shape: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([shape], ref_template=REFERENCE)
    required = components[shape.__name__].get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "description": describe(shape.__name__, name),
            "required": name in required,
            "schema": without_null(resolved(schema, components)),
        }
        for name, schema in components[shape.__name__]["properties"].items()
    ]


def resolved(schema: Any, components: dict[str, Any]) -> Any:
    """Inline the references of a schema: query parameters do not refer to components."""
    if isinstance(schema, list):
        return [resolved(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(components[schema["$ref"].rpartition("/")[2]], components)
    return {name: resolved(value, components) for name, value in schema.items()}


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null, which a query parameter cannot have.

    >>> without_null({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})
    {'type': 'string'}
    """
    found = {name: value for name, value in schema.items() if name != "default" or value not in (None, (), [])}
    choices: list[dict[str, Any]] = [choice for choice in found.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        return choices[0] | found
    return found | ({"anyOf": choices} if choices else {})


LOCATION = {"Location": {"description": "The URL of the resource.", "schema": {"type": "string"}}}
WITH_LOCATION = {202: "Accepted; it is carried out later.", 303: "Redirect."}


def responses(route: Route) -> dict[str, Any]:
    kind = "text/event-stream" if route.is_stream else route.media_type
    shown: dict[str, Any] = {}
    if kind != JSON:
        shown["content"] = {kind: {"schema": {"type": "string"}}}
    elif route.response is not None:
        shown["content"] = {JSON: {"schema": schema_of(route.response)}}
    success = {"description": WITH_LOCATION.get(route.status, "Success."), **({} if route.status == 303 else shown)}
    if route.status in WITH_LOCATION:
        success["headers"] = LOCATION
    in_envelope = route.path.startswith(ENVELOPE_PATH)
    media_type, name = (JSON, "ErrorEnvelope") if in_envelope else (MEDIA_TYPE, "Problem")
    content = {media_type: {"schema": {"$ref": REFERENCE.format(name=name)}}}
    described: dict[str, Any] = {str(route.status): success}
    for status, meaning in route.other_statuses:
        described[str(status)] = {"description": meaning, **shown}
    for status in statuses(route):
        described[str(status)] = {"description": PROBLEMS[status], "content": content}
        if status in (429, 503):
            described[str(status)]["headers"] = {"Retry-After": RETRY_AFTER}
    return described


def statuses(route: Route) -> list[int]:
    """The statuses of the problems that this route can respond with."""
    found = set(route.problems)
    if route.permission is not None:
        found |= {401, 403, 429, 503}
    if route.is_api:
        found.add(422)  # an unknown query parameter
    if route.body is not None:
        found |= {400, 413, 415, 422}
    if "{" in route.path:
        found.add(404)
    if route.repeats_response or (route.method != "GET" and "{" in route.path):
        found.add(409)
    return sorted(found)
