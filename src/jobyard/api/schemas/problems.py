"""Problem documents (RFC 9457), the body of every error response."""

from __future__ import annotations

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    pointer: str  # a JSON pointer into the body, or the name of a query parameter or header
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str = ""
    instance: str = ""
    errors: tuple[FieldError, ...] = ()
    trace_id: str = ""
