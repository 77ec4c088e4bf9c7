"""Pagination: an opaque token of the next page of one list, in the body and as a Link header."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from jobyard.api.schemas.jobs import MAX_PAGE
from jobyard.api.schemas.problems import FieldError
from jobyard.server.parsing import raw_path
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext

# A version prefix, in case the content of a token ever changes.
_VERSION = "b"
_NAME_BYTES = 4
_encode = msgspec.json.Encoder().encode

PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
PageToken: TypeAlias = Annotated[str, Meta(max_length=2500)]


def list_name(context: RequestContext, part: str = "") -> str:
    """What a page token belongs to: the route, its path parameters, and `part` where one route has several lists."""
    return "\n".join((context.request.scope["endpoint"].path, *context.path.values(), part))


def encode_page_token(cursor: str | None, of_list: str) -> str | UnsetType:
    """
    >>> decode_page_token(str(encode_page_token("1234", "jobs")), "jobs")
    '1234'
    >>> encode_page_token(None, "jobs")
    UNSET
    """
    if cursor is None:
        return UNSET
    return urlsafe_b64encode((_prefix(of_list) + cursor).encode()).decode().rstrip("=")


def decode_page_token(token: str | None, of_list: str) -> str | None:
    if not token:  # empty, as forms and scripts send it for the first page
        return None
    try:
        text = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    prefix = _prefix(of_list)
    if not text.startswith(prefix):
        raise invalid_page_token()
    return text.removeprefix(prefix)


def _prefix(of_list: str) -> str:
    return _VERSION + blake2b(of_list.encode(), digest_size=_NAME_BYTES).hexdigest()


def invalid_page_token() -> HttpError:
    detail = "Invalid page_token for this list; omit it to start over."
    return HttpError(422, "bad_page_token", detail, errors=(FieldError("page_token", detail),))


def page_response(
    context: RequestContext, page_type: Callable[..., Any], items: Iterable[Any], cursor: str | None
) -> Response:
    page = page_type(items=tuple(items), next_page_token=encode_page_token(cursor, list_name(context)))
    headers = {}
    if cursor is not None:
        request = context.request
        query = request.url.include_query_params(page_token=page.next_page_token).query
        headers["Link"] = f'<{raw_path(request)}?{query}>; rel="next"'
    return Response(_encode(page), 200, headers, "application/json")
