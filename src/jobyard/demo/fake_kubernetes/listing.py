"""Lists: snapshots, pages, continue tokens and reads from a stale cache."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import msgspec

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.resources import Resource
from jobyard.demo.fake_kubernetes.selectors import Matcher
from jobyard.demo.fake_kubernetes.storage import Key, Storage

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    limit: int = 0
    continue_token: str = ""
    revision: str = ""
    match: str = ""


class _Token(msgspec.Struct):
    rv: int
    start: str
    v: str = "meta.k8s.io/v1"


def encode_token(revision: int, key: Key) -> str:
    text = msgspec.json.encode(_Token(revision, "/".join(key)))
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def decode_token(text: str) -> tuple[int, Key]:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise errors.bad_request("continue key is not valid: incorrect encoding") from None
    namespace, _, name = token.start.partition("/")
    return token.rv, (namespace, name)


def parse_revision(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise errors.invalid_revision(text)
    return int(text)


def list_objects(
    storage: Storage,
    resource: Resource,
    namespace: str | None,
    wanted: Matcher,
    page: Page,
    *,
    lag: int = 0,
    token_gone: bool = False,
) -> JsonObject:
    """One page of a list; `lag` reads that many revisions behind, `token_gone` treats the token as expired."""
    revision, start = _choose_revision(storage, page, lag)
    objects = None if token_gone and page.continue_token else storage.snapshot(resource.plural, revision)
    if objects is None:
        raise _too_old(storage, page, start)
    keys = sorted(key for key in objects if key > start and namespace in {None, key[0]} and wanted(objects[key]))
    metadata: JsonObject = {"resourceVersion": str(revision)}
    if page.limit and len(keys) > page.limit:
        metadata["continue"] = encode_token(revision, keys[page.limit - 1])
        metadata["remainingItemCount"] = len(keys) - page.limit
        keys = keys[: page.limit]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": [_without_type(objects[key]) for key in keys],
    }


def _without_type(item: JsonObject) -> JsonObject:
    """Items of a list carry neither apiVersion nor kind."""
    return {key: value for key, value in item.items() if key not in {"apiVersion", "kind"}}


def _choose_revision(storage: Storage, page: Page, lag: int) -> tuple[int, Key]:
    if page.continue_token:
        if page.revision not in {"", "0"}:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        revision, start = decode_token(page.continue_token)
        return (storage.revision if revision < 0 else revision), start
    asked = parse_revision(page.revision)
    if page.match and not page.revision:
        raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if asked > storage.revision:
        raise errors.revision_too_large(asked, storage.revision)
    if page.match == "Exact":
        return asked, ("", "")
    return max(1, asked, storage.revision - lag), ("", "")


def _too_old(storage: Storage, page: Page, start: Key) -> errors.ApiError:
    if not page.continue_token:
        return errors.expired(f"The resourceVersion for the provided list is too old: {page.revision}")
    problem = errors.expired(_TOO_OLD)
    problem.body["metadata"] = {"continue": encode_token(-1, start)}
    return problem
