"""What a server refuses, as the same exceptions that a store in this process raises."""

from __future__ import annotations

import msgspec

from jobyard import errors
from jobyard.errors import JobyardError


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an RFC 9457 document."""

    code: str
    detail: str = ""
    title: str = ""


def _every(base: type[JobyardError]) -> dict[str, type[JobyardError]]:
    found = {base.code: base}
    for each in base.__subclasses__():
        found |= _every(each)
    return found


CLASSES: dict[str, type[JobyardError]] = _every(JobyardError) | {
    # Codes of the door itself that mean the same as something known.
    "queue_not_found": errors.BadOption,
    "bad_page_token": errors.BadInput,
    "body_too_large": errors.PayloadTooLarge,
    "not_json": errors.PayloadNotJson,
}
# For codes that a newer server may have.
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


def refusal(status: int, content: bytes, url: str) -> JobyardError:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Something between us and the server, or something else altogether.
        if status in (401, 403, 429, 503):
            return BY_STATUS[status](f"{url} answered {status}, and not in the words of a jobyard server.")
        return errors.ServerUnavailable(
            f"{url} answered {status}, and not in the words of a jobyard server. Is it the right URL?"
        )
    return class_of(problem.code, status)(problem.detail or problem.title)
