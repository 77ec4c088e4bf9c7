"""Schemas of tokens, the audit log and the current principal."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import Name, RequestSchema, Timestamp
from jobyard.domain.access import MAX_SCOPES, AuditEntry, AuditLog, Permission, Principal, Role, TokenInfo
from jobyard.domain.instant import rfc3339
from jobyard.domain.options import MAX_SECONDS


class TokenRequest(RequestSchema, frozen=True):
    """A token to create. Without queues, groups or kinds it is not restricted to any."""

    name: Name
    role: Role
    queues: Annotated[tuple[Name, ...], Meta(max_length=MAX_SCOPES)] = ()
    groups: Annotated[tuple[Name, ...], Meta(max_length=MAX_SCOPES)] = ()
    kinds: Annotated[tuple[Name, ...], Meta(max_length=MAX_SCOPES)] = ()
    expire_seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)] | None = None


class RotateRequest(RequestSchema, frozen=True):
    """How to rotate a token."""

    overlap_seconds: Annotated[float, Meta(ge=0, le=MAX_SECONDS)] = 0.0


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: Role
    queues: tuple[str, ...]
    groups: tuple[str, ...]
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None = None
    kinds: tuple[str, ...] = ()


class TokenCreated(TokenView, frozen=True, kw_only=True):
    token: str  # shown only in this response


class TokenList(msgspec.Struct, frozen=True):
    items: tuple[TokenView, ...]


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    log: AuditLog = AuditLog.CHANGES
    number: int
    at: Timestamp
    principal: str
    name: str
    role: Role
    action: str
    target: str
    details: dict[str, Any]


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest first."""

    items: tuple[AuditView, ...]
    next_page_token: str | UnsetType = UNSET


class PrincipalView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    role: Role
    permissions: tuple[Permission, ...]
    queues: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    csrf_token: str | None = None  # browser sessions send it as X-CSRF-Token with every change
    session_expires_at: Timestamp | None = None  # of a browser session
    version: str = ""
    store: str = ""  # its URL, without secrets
    root_path: str = ""
    environment: str = ""
    has_runners: bool = False
    secret_names: str = ""  # a regular expression: how names of fields end whose values are hidden


def token_view(info: TokenInfo) -> TokenView:
    return TokenView(**_token(info))


def token_created(info: TokenInfo, text: str) -> TokenCreated:
    return TokenCreated(token=text, **_token(info))


def _token(info: TokenInfo) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(info),
        "created_at": rfc3339(info.created_at),
        "expires_at": None if info.expires_at is None else rfc3339(info.expires_at),
        "last_used_at": None if info.last_used_at is None else rfc3339(info.last_used_at),
    }


def audit_view(entry: AuditEntry) -> AuditView:
    return AuditView(**{**msgspec.structs.asdict(entry), "at": rfc3339(entry.at)})


def principal_view(principal: Principal, csrf_token: str | None = None) -> PrincipalView:
    fields: dict[str, Any] = {
        name: getattr(principal, name) for name in ("id", "name", "role", "queues", "groups", "kinds")
    }
    permissions = tuple(each for each in Permission if principal.may(each))
    return PrincipalView(permissions=permissions, csrf_token=csrf_token, **fields)
