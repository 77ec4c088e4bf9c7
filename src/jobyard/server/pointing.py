"""Where in a request the fault lies, when it fits the shape and is refused for what it means."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jobyard.api.schemas.problems import FieldError
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.errors import BadInput, BadOption
from jobyard.server.parsing import refusal
from jobyard.server.problems import HttpError, status_of


def pointed(error: BadInput, base: str = "") -> HttpError:
    """The same refusal, with a pointer to each field that it is about; `base` is where the job stands in the body."""
    found = tuple(FieldError(base + each.pointer, each.detail) for each in _errors(error))
    return HttpError(status_of(error), error.code, str(error), errors=found)


def _errors(error: BadInput) -> Iterator[FieldError]:
    if isinstance(error.__cause__, msgspec.ValidationError):
        # The payload does not fit the handler's parameters.
        for each in refusal(error.__cause__).errors:
            yield FieldError("/payload" + each.pointer, str(error))
        return
    if isinstance(error, BadOption) and not error.option:
        return
    for each in (error, *getattr(error, "others", ())):
        option = JOB_OPTIONS.get(each.option)
        yield FieldError(f"/{option.field if option else each.option or 'payload'}", str(each))
