"""Errors as problem documents (RFC 9457): a stable code, and a pointer to each invalid field."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from starlette.responses import Response

from jobyard import errors
from jobyard.api.schemas.problems import FieldError, Problem
from jobyard.api.schemas.running import EnvelopeError, ErrorEnvelope
from jobyard.observability.current import trace_id

MEDIA_TYPE = "application/problem+json"
# Below this path every response has an envelope, errors too.
ENVELOPE_PATH = "/api/v2/"
FieldErrors: TypeAlias = tuple[FieldError, ...]
Headers: TypeAlias = dict[str, str]

WWW_AUTHENTICATE = {"WWW-Authenticate": "Bearer"}
# The nearest class in the MRO of an error decides.
STATUS: dict[type[errors.JobyardError], int] = {
    errors.JobyardError: 500,
    errors.BadInput: 422,
    errors.PayloadTooLarge: 413,
    errors.QueueFull: 429,
    errors.ConfigurationError: 500,
    errors.JobNotFound: 404,
    errors.WorkerNotFound: 404,
    errors.NotFound: 404,
    errors.NotPossible: 409,
    errors.LeaseLost: 409,
    errors.ResultNotReady: 504,
    errors.StoreError: 503,
}
TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content too large",
    415: "Unsupported media type",
    422: "Validation failed",
    429: "Too many requests",
    431: "Request header fields too large",
    500: "Internal server error",
    502: "Bad gateway",
    503: "Service unavailable",
    504: "Gateway timeout",
}


class HttpError(Exception):
    """Raised by a handler to respond with this problem."""

    def __init__(
        self, status: int, code: str, detail: str, *, errors: FieldErrors = (), headers: Headers | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}


def status_of(error: errors.JobyardError) -> int:
    return next(STATUS[each] for each in type(error).__mro__ if each in STATUS)


def problem(
    status: int, code: str, detail: str, *, instance: str = "", errors: FieldErrors = (), headers: Headers | None = None
) -> Response:
    if instance.startswith(ENVELOPE_PATH):
        error = EnvelopeError(code=code, message=detail, errors=errors, trace_id=trace_id())
        return Response(msgspec.json.encode(ErrorEnvelope(error=error)), status, headers, "application/json")
    title = TITLES.get(status, "Error")
    document = Problem(
        title=title, status=status, code=code, detail=detail, instance=instance, errors=errors, trace_id=trace_id()
    )
    return Response(msgspec.json.encode(document), status, headers, MEDIA_TYPE)


def from_error(error: errors.JobyardError, instance: str = "") -> Response:
    headers = {"Retry-After": "1"} if isinstance(error, errors.StoreError | errors.QueueFull) else None
    return problem(status_of(error), error.code, str(error), instance=instance, headers=headers)


def invalid_token(detail: str) -> HttpError:
    """A token was sent and rejected, as RFC 6750 says it."""
    return HttpError(401, "invalid_token", detail, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


def from_http_error(error: HttpError, instance: str = "") -> Response:
    return problem(
        error.status, error.code, error.detail, instance=instance, errors=error.errors, headers=error.headers
    )
