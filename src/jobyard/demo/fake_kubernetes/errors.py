"""Error responses in the shape of a Kubernetes Status object."""

from __future__ import annotations

from typing import Any, NamedTuple

JsonObject = dict[str, Any]


class ApiError(Exception):
    """A request that the API server answered with a Status body."""

    def __init__(self, status_code: int, body: JsonObject, retry_after: int | None = None) -> None:
        super().__init__(f"{status_code} {body.get('reason', '')}: {body.get('message', '')}")
        self.status_code = status_code
        self.body = body
        self.retry_after = retry_after


class ConnectionLostError(ConnectionResetError):
    """A connection that ended without a complete response; `partial` holds the bytes of an unfinished watch line."""

    def __init__(self, message: str = "connection reset by peer", partial: bytes = b"") -> None:
        super().__init__(message)
        self.partial = partial


class Problem(NamedTuple):
    """One field of an object that fails validation."""

    field: str
    reason: str
    message: str


def status_body(code: int, reason: str, message: str, details: JsonObject | None = None) -> JsonObject:
    body: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = details
    body["code"] = code
    return body


def error(
    code: int, reason: str, message: str, details: JsonObject | None = None, retry_after: int | None = None
) -> ApiError:
    return ApiError(code, status_body(code, reason, message, details), retry_after)


def identify(kind: str, name: str = "", group: str = "") -> JsonObject:
    """The `details` of an error about one resource; empty parts are left out, as the API server does."""
    parts = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in parts.items() if value}


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, name: str, group: str = "") -> ApiError:
    message = f'{qualified(plural, group)} "{name}" not found'
    return error(404, "NotFound", message, identify(plural, name, group))


def unknown_path() -> ApiError:
    return error(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, name: str, group: str = "", *, terminating: bool = False) -> ApiError:
    prefix = "object is being deleted: " if terminating else ""
    message = f'{prefix}{qualified(plural, group)} "{name}" already exists'
    return error(409, "AlreadyExists", message, identify(plural, name, group))


def conflict(plural: str, name: str, cause: str, group: str = "") -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {cause}'
    return error(409, "Conflict", message, identify(plural, name, group))


def modified_meanwhile(plural: str, name: str, group: str = "") -> ApiError:
    cause = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(plural, name, cause, group)


def forbidden(plural: str, name: str, cause: str, group: str = "") -> ApiError:
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return error(403, "Forbidden", f"{subject} is forbidden: {cause}", identify(plural, name, group))


def bad_request(message: str) -> ApiError:
    return error(400, "BadRequest", message)


def invalid(kind: str, name: str, problems: list[Problem], group: str = "") -> ApiError:
    texts = [f"{problem.field}: {problem.message}" for problem in problems]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": each.reason, "message": each.message, "field": each.field} for each in problems]
    details = {**identify(kind, name, group), "causes": causes}
    return error(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


def expired(message: str) -> ApiError:
    return error(410, "Expired", message)


def too_many_requests(retry_after: int) -> ApiError:
    message = "the server has received too many requests and has asked us to try again later"
    return error(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after}, retry_after)


def internal_error(cause: str) -> ApiError:
    details = {"causes": [{"message": cause}]}
    return error(500, "InternalError", f"Internal error occurred: {cause}", details)


def timed_out(message: str) -> ApiError:
    return error(504, "Timeout", message, {})


def revision_too_large(asked: int, current: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return error(504, "Timeout", f"Timeout: {message}", details, 1)


def service_unavailable() -> ApiError:
    return error(503, "ServiceUnavailable", "the server is currently unable to handle the request", {})


def unauthorized() -> ApiError:
    return error(401, "Unauthorized", "Unauthorized")


def unsupported_media_type() -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: application/merge-patch+json"
    )
    return error(415, "UnsupportedMediaType", message, {})


def method_not_allowed() -> ApiError:
    return error(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def invalid_revision(text: str) -> ApiError:
    message = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return invalid("ListOptions", "", [Problem("resourceVersion", "FieldValueInvalid", message)], "meta.k8s.io")
