"""API tokens: create, list, revoke and authenticate. The store holds only a hash of the secret."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from jobyard.domain import options
from jobyard.domain.access import MAX_SCOPES, Principal, Role, TokenInfo
from jobyard.errors import BadOption, did_you_mean
from jobyard.ports.record_store import Record
from jobyard.ports.store import Store

COLLECTION = "jobyard.tokens"
# How long a token is cached: one that another server revoked is accepted for at most this long.
CACHE_SECONDS = 1.0
MAX_CACHED = 10_000
PAGE = 500
# 32 random bytes cannot be guessed from their hash, so no slow hash is needed.
SECRET_BYTES = 32
_TEXT = re.compile(r"jy_([0-9a-f]{12})_([A-Za-z0-9_-]{20,100})")


class TokenRecord(msgspec.Struct, frozen=True):
    info: TokenInfo
    secret_sha256: str


_decode = msgspec.json.Decoder(TokenRecord).decode


class CachedToken(NamedTuple):
    """A token as last read from the store."""

    until: float  # when it must be read again, by the clock
    secret_sha256: str
    principal: Principal


class Tokens:
    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, CachedToken] = {}  # by id
        self._recent: dict[bytes, CachedToken] = {}  # by the hash of the whole token
        self._reading: dict[str, asyncio.Task[CachedToken | None]] = {}

    async def create(
        self,
        name: str,
        role: Role | str,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        expire_seconds: float | None = None,
        known: Callable[[TokenInfo], bool] = lambda _: True,
    ) -> tuple[TokenInfo, str]:
        """Create a token; the second value is its text, which cannot be read again. Names are unique.

        `known`: which tokens the caller may see; the name of any other may be taken twice.
        """
        options.check_name("token", name)
        if any(info.name == name and known(info) for info in await self.list()):
            raise BadOption(f'Token "{name}" already exists. Choose another name, or revoke it first.', option="name")
        now = await self._store.now()
        if expire_seconds is not None:
            options.check_positive_seconds("expire_seconds", expire_seconds)
        info = TokenInfo(
            id=secrets.token_hex(6),
            name=name,
            role=checked_role(role),
            queues=_scopes("queue", queues),
            groups=_scopes("group", groups),
            created_at=now,
            expires_at=None if expire_seconds is None else now + round(expire_seconds * 1000),
        )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        data = msgspec.json.encode(TokenRecord(info, _hash(secret)))
        await self._store.put(COLLECTION, info.id, data, expect=0, expire_seconds=expire_seconds)
        return info, f"jy_{info.id}_{secret}"

    async def list(self) -> list[TokenInfo]:
        """All valid tokens, oldest first."""
        found: list[TokenInfo] = []
        after: str | None = None
        while True:
            page: Sequence[Record] = await self._store.fetch_all(COLLECTION, PAGE, after)
            found += [_decode(record.data).info for record in page]
            if len(page) < PAGE:
                return sorted(found, key=lambda info: (info.created_at, info.id))
            after = page[-1].key

    async def revoke(self, token_id: str) -> bool:
        """Whether the token existed; other processes reject it within CACHE_SECONDS."""
        is_removed = await self._store.remove(COLLECTION, token_id)
        self._known.pop(token_id, None)
        self._recent.clear()
        return is_removed

    def cached(self, text: bytes) -> Principal | None:
        """The principal of a token that was authenticated within CACHE_SECONDS, without a look at the store."""
        known = self._recent.get(hashlib.sha256(text).digest())
        return None if known is None or self._clock() >= known.until else known.principal

    async def authenticate(self, text: str) -> Principal | None:
        """The principal of this token; None if it is malformed, unknown, revoked or expired."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            return None
        known = await self._find(parts.group(1))
        if known is None or not hmac.compare_digest(known.secret_sha256, _hash(parts.group(2))):
            return None
        if len(self._recent) >= MAX_CACHED:
            self._recent.clear()
        self._recent[hashlib.sha256(text.encode()).digest()] = known
        return known.principal

    async def holder(self, token_id: str) -> Principal | None:
        """The principal of the token with this id; None if it is not valid."""
        known = await self._find(token_id)
        return None if known is None else known.principal

    async def _find(self, token_id: str) -> CachedToken | None:
        known = self._known.get(token_id)
        if known is not None and self._clock() < known.until:
            return known
        # Concurrent requests share one read, and a cancelled request does not cancel it for the others.
        task = self._reading.get(token_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(token_id))
            self._reading[token_id] = task
            task.add_done_callback(lambda _: self._reading.pop(token_id, None))
        return await asyncio.shield(task)

    async def _read(self, token_id: str) -> CachedToken | None:
        # Counted from before the read: the token may be revoked while the response is on its way.
        started = self._clock()
        record = await self._store.fetch(COLLECTION, token_id)
        self._known.pop(token_id, None)
        if record is None:
            return None
        stored = _decode(record.data)
        known = CachedToken(started + CACHE_SECONDS, stored.secret_sha256, stored.info.principal)
        self._known[token_id] = known
        return known


def checked_role(value: Role | str) -> Role:
    """
    >>> checked_role("admim")
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Role "admim" not found. Did you mean "admin"?
    """
    known = [str(role) for role in Role]
    if value not in known:
        raise BadOption(f'Role "{str(value)[:50]}" not found.{did_you_mean(str(value)[:50], known)}', option="role")
    return Role(value)


def _scopes(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadOption(f"{what}s must be a list of names: [{names!r}].", option=f"{what}s")
    if len(names) > MAX_SCOPES:
        raise BadOption(f"A token may have at most {MAX_SCOPES} {what}s, not {len(names)}.", option=f"{what}s")
    return tuple(dict.fromkeys(options.check_name(what, name) for name in names))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
