"""API tokens: made, listed, revoked, and recognised; the store holds only a hash of the secret."""

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

from jobyard.domain.access import Principal, Role
from jobyard.domain.instant import Instant
from jobyard.errors import BadOption, did_you_mean
from jobyard.operations import job_options as options
from jobyard.ports.record_store import Record
from jobyard.ports.store import Store

COLLECTION = "jobyard.tokens"
# A token that was revoked, here or by another server, may still open doors for so long.
REMEMBER_SECONDS = 1.0
MAX_RECENT = 10_000
MAX_SCOPES = 1000
PAGE = 500
# 32 random bytes cannot be guessed from their hash, so no slow hash is needed.
SECRET_BYTES = 32
_TEXT = re.compile(r"jy_([0-9a-f]{12})_([A-Za-z0-9_-]{20,100})")


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a token."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    created_at: Instant = 0
    expires_at: Instant | None = None

    @property
    def principal(self) -> Principal:
        return Principal(id=self.id, name=self.name, role=self.role, queues=self.queues, groups=self.groups)


class _Kept(msgspec.Struct, frozen=True):
    info: TokenInfo
    secret_sha256: str


_decode = msgspec.json.Decoder(_Kept).decode


class _Known(NamedTuple):
    """A token as it was last read."""

    until: float  # when it must be read again
    secret_sha256: str
    principal: Principal


class Tokens:
    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, _Known] = {}  # by id
        self._recent: dict[bytes, _Known] = {}  # by the hash of the whole text
        self._looking: dict[str, asyncio.Task[_Known | None]] = {}

    async def create(
        self,
        name: str,
        role: Role | str,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        expire_seconds: float | None = None,
        known: Callable[[TokenInfo], bool] = lambda _: True,
    ) -> tuple[TokenInfo, str]:
        """The token's text is answered here and never again. Two of the same name could not be told apart.

        `known`: the tokens that whoever asks may know of; of others not even the name is told.
        """
        options.name("token", name)
        if any(info.name == name and known(info) for info in await self.list()):
            raise BadOption(f"There is a token named {name} already. Choose another name, or revoke that one first.")
        now = await self._store.now()
        if expire_seconds is not None:
            options.positive("expire_seconds", expire_seconds)
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
        data = msgspec.json.encode(_Kept(info, _hash(secret)))
        await self._store.put(COLLECTION, info.id, data, expect=0, expire_seconds=expire_seconds)
        return info, f"jy_{info.id}_{secret}"

    async def list(self) -> list[TokenInfo]:
        """All that are valid now, oldest first."""
        found: list[TokenInfo] = []
        after: str | None = None
        while True:
            page: Sequence[Record] = await self._store.fetch_all(COLLECTION, PAGE, after)
            found += [_decode(record.data).info for record in page]
            if len(page) < PAGE:
                return sorted(found, key=lambda info: (info.created_at, info.id))
            after = page[-1].key

    async def revoke(self, token_id: str) -> bool:
        """Whether there was one; elsewhere it stops within REMEMBER_SECONDS."""
        is_removed = await self._store.remove(COLLECTION, token_id)
        self._known.pop(token_id, None)
        self._recent.clear()
        return is_removed

    def remembered(self, text: bytes) -> Principal | None:
        """Who showed this very text a moment ago: the short way, for those who ask often."""
        known = self._recent.get(hashlib.sha256(text).digest())
        return None if known is None or self._clock() >= known.until else known.principal

    async def authenticate(self, text: str) -> Principal | None:
        """Who holds this token; None when it is not one, or is no longer."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            return None
        known = await self._find(parts.group(1))
        if known is None or not hmac.compare_digest(known.secret_sha256, _hash(parts.group(2))):
            return None
        if len(self._recent) >= MAX_RECENT:
            self._recent.clear()
        self._recent[hashlib.sha256(text.encode()).digest()] = known
        return known.principal

    async def holder(self, token_id: str) -> Principal | None:
        """Whom the token with this id stands for, as long as it is valid."""
        known = await self._find(token_id)
        return None if known is None else known.principal

    async def _find(self, token_id: str) -> _Known | None:
        known = self._known.get(token_id)
        if known is not None and self._clock() < known.until:
            return known
        # Requests that meet here share one look, and none of them can cancel it for the others.
        task = self._looking.get(token_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look(token_id))
            self._looking[token_id] = task
            task.add_done_callback(lambda _: self._looking.pop(token_id, None))
        return await asyncio.shield(task)

    async def _look(self, token_id: str) -> _Known | None:
        # Counted from before the look: what is read may be revoked while the answer travels.
        asked = self._clock()
        record = await self._store.fetch(COLLECTION, token_id)
        self._known.pop(token_id, None)
        if record is None:
            return None
        kept = _decode(record.data)
        known = _Known(asked + REMEMBER_SECONDS, kept.secret_sha256, kept.info.principal)
        self._known[token_id] = known
        return known


def checked_role(value: Role | str) -> Role:
    """
    >>> checked_role("admim")
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: There is no role admim. Did you mean "admin"?
    """
    known = [str(role) for role in Role]
    if value not in known:
        raise BadOption(f"There is no role {str(value)[:50]}.{did_you_mean(str(value)[:50], known)}")
    return Role(value)


def _scopes(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadOption(f"{what}s is a list of names: write [{names!r}].")
    if len(names) > MAX_SCOPES:
        raise BadOption(f"A token may be confined to {MAX_SCOPES} {what}s, not to {len(names)}.")
    return tuple(dict.fromkeys(options.name(what, name) for name in names))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
