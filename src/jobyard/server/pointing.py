"""Where in a request the fault lies, when it fits the shape and is refused for what it means."""

from __future__ import annotations

import msgspec

from jobyard.api.convert import IDEMPOTENCY
from jobyard.api.schemas.jobs import JobRequest
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.tags import is_reserved
from jobyard.errors import BadInput, BadOption, PayloadNotJson, PayloadTooLarge, UnknownKind
from jobyard.operations import job_options as options
from jobyard.operations.job_options import Options, with_options
from jobyard.operations.submit import FIELDS, words_of
from jobyard.server.parsing import refusal
from jobyard.server.problems import HttpError, status_of


def pointed(error: BadInput, request: JobRequest, base: str = "") -> HttpError:
    """The same refusal, with a pointer to each field that it is about; `base` is where the job stands in the body."""
    found = tuple(FieldError(base + pointer, str(error)) for pointer in _pointers(error, request))
    return HttpError(status_of(error), error.code, str(error), errors=found)


def _pointers(error: BadInput, request: JobRequest) -> list[str]:
    if isinstance(error, UnknownKind):
        return ["/kind"]
    if isinstance(error, BadOption):
        return _of_options(request)
    if isinstance(error, PayloadTooLarge | PayloadNotJson):
        return ["/private_payload" if "private payload" in str(error) else "/payload"]
    if isinstance(error.__cause__, msgspec.ValidationError):
        # It does not fit the handler's parameters.
        return ["/payload" + each.pointer for each in refusal(error.__cause__).errors]
    return ["/payload"]


def _of_options(request: JobRequest) -> list[str]:
    """Each option is tried by itself; where each is good, it is two that do not go together."""
    reserved = [f"/tags/{number}" for number, tag in enumerate(request.tags or ()) if is_reserved(tag)]
    if request.unique is not None and request.unique.key.startswith(IDEMPOTENCY):
        reserved.append("/unique/key")
    if reserved:
        return reserved
    wrong = []
    try:
        options.name("kind", request.kind)
    except BadOption:
        wrong.append("/kind")
    for word, value in words_of(request).items():
        try:
            with_options(Options(), {word: value})
        except BadOption:
            wrong.append("/" + FIELDS[word])
    return wrong or ["/delay_seconds", "/run_at"]
