"""Error responses of a server as exceptions, the same that a local store raises."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from jobyard import errors
from jobyard.api.schemas.problems import FieldError
from jobyard.errors import JobyardError
from jobyard.github.errors import GitHubError


class EnvelopeProblem(msgspec.Struct, frozen=True):
    """An error below `/api/v2`."""

    code: str
    message: str
    errors: tuple[FieldError, ...] = ()


class Envelope(msgspec.Struct, frozen=True):
    error: EnvelopeProblem


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an RFC 9457 document that the client reads."""

    code: str
    detail: str = ""
    title: str = ""
    errors: tuple[FieldError, ...] = ()


def _by_code(base: type[JobyardError]) -> dict[str, type[JobyardError]]:
    found = {base.code: base}
    for each in base.__subclasses__():
        found = _by_code(each) | found  # a class without a code of its own stands for nothing new
    return found


CLASSES: dict[str, type[JobyardError]] = {
    **_by_code(JobyardError),
    **_by_code(GitHubError),
    # Codes that only the server has, with the class of the same meaning.
    "queue_not_found": errors.BadOption,
    "bad_page_token": errors.BadInput,
    "body_too_large": errors.PayloadTooLarge,
    "not_json": errors.PayloadNotJson,
}
# For unknown codes of a newer server.
BY_STATUS: dict[int, type[JobyardError]] = {
    400: errors.BadInput,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.NotPossible,
    413: errors.PayloadTooLarge,
    422: errors.BadInput,
    429: errors.TooManyRequests,
    503: errors.StoreUnavailable,
}


def class_of(code: str, status: int) -> type[JobyardError]:
    """
    >>> class_of("queue_full", 429).__name__, class_of("something_new", 403).__name__
    ('QueueFull', 'Forbidden')
    """
    return CLASSES.get(code) or BY_STATUS.get(status, JobyardError)


def _problem(content: bytes) -> ProblemDetails:
    try:
        found = msgspec.json.decode(content, type=Envelope).error
    except msgspec.ValidationError:
        return msgspec.json.decode(content, type=ProblemDetails)
    return ProblemDetails(code=found.code, detail=found.message, errors=found.errors)


def error_of(status: int, content: bytes, url: str) -> JobyardError:
    try:
        problem = _problem(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # From a proxy, or from another kind of server.
        if status in (401, 403, 429, 503):
            return BY_STATUS[status](f"{url} responded with status {status}, and not as a jobyard server does.")
        return errors.ServerUnavailable(
            f"{url} responded with status {status}, and not as a jobyard server does. Check the URL."
        )
    detail = problem.detail or problem.title
    if problem.code == errors.NotFound.code and urlsplit(url).path:
        detail += " Check the path in the server URL."
    error = class_of(problem.code, status)(detail)
    if isinstance(error, errors.BadOption):
        error.others = tuple(errors.BadOption(each.detail) for each in problem.errors if each.detail != detail)
    return error
