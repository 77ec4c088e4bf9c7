"""Pages of a list: an opaque token for the next one, in the answer and as a Link."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from jobyard.api.schemas.jobs import MAX_PAGE
from jobyard.api.schemas.problems import FieldError
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext

# Another letter, should a token ever hold something else.
_FIRST = "a"
_encode = msgspec.json.Encoder().encode

PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
PageToken: TypeAlias = Annotated[str, Meta(max_length=2500)]


def token(position: str | None) -> str | UnsetType:
    """
    >>> position(str(token("1234")))
    '1234'
    >>> token(None)
    UNSET
    """
    if position is None:
        return UNSET
    return urlsafe_b64encode((_FIRST + position).encode()).decode().rstrip("=")


def position(token: str | None) -> str | None:
    if token is None:
        return None
    try:
        text = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_FIRST):
        raise bad_token()
    return text.removeprefix(_FIRST)


def bad_token() -> HttpError:
    return HttpError(
        422,
        "bad_page_token",
        "This page token is none of this list's; leave it out to begin at the first page.",
        errors=(FieldError("page_token", "Not a token of this list."),),
    )


def answer(context: RequestContext, page: Any) -> Response:
    """The page, and where the next one is."""
    headers = {}
    if page.next_page_token is not UNSET:
        url = context.request.url.include_query_params(page_token=page.next_page_token)
        headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    return Response(_encode(page), 200, headers, "application/json")
