"""Pagination: an opaque token of the next page, in the body and as a Link header."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from jobyard.api.schemas.jobs import MAX_PAGE
from jobyard.api.schemas.problems import FieldError
from jobyard.server.dispatch import raw_path
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext

# A version prefix, in case the content of a token ever changes.
_VERSION = "a"
_encode = msgspec.json.Encoder().encode

PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
PageToken: TypeAlias = Annotated[str, Meta(max_length=2500)]


def encode_page_token(cursor: str | None) -> str | UnsetType:
    """
    >>> decode_page_token(str(encode_page_token("1234")))
    '1234'
    >>> encode_page_token(None)
    UNSET
    """
    if cursor is None:
        return UNSET
    return urlsafe_b64encode((_VERSION + cursor).encode()).decode().rstrip("=")


def decode_page_token(token: str | None) -> str | None:
    if not token:  # empty, as forms and scripts send it for the first page
        return None
    try:
        text = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_VERSION):
        raise invalid_page_token()
    return text.removeprefix(_VERSION)


def invalid_page_token() -> HttpError:
    detail = "Invalid page_token for this list; omit it to start over."
    return HttpError(422, "bad_page_token", detail, errors=(FieldError("page_token", detail),))


def page_response(
    context: RequestContext, page_type: Callable[..., Any], items: Iterable[Any], cursor: str | None
) -> Response:
    page = page_type(items=tuple(items), next_page_token=encode_page_token(cursor))
    headers = {}
    if cursor is not None:
        request = context.request
        query = request.url.include_query_params(page_token=page.next_page_token).query
        headers["Link"] = f'<{raw_path(request)}?{query}>; rel="next"'
    return Response(_encode(page), 200, headers, "application/json")
