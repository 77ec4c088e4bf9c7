"""API tokens: create, list, revoke and authenticate. The store holds only a hash of the secret."""

from __future__ import annotations

import asyncio
import contextlib
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
from jobyard.domain.instant import Instant
from jobyard.errors import BadOption, JobyardError, NotPossible, did_you_mean
from jobyard.ports.record_store import Record
from jobyard.ports.store import Store

COLLECTION, USES = "jobyard.tokens", "jobyard.token_uses"
# Ids of tokens whose text was given by the configuration.
GIVEN = "jobyard.given_tokens"
# The use of a token is written at most once in this time, so that it costs no request anything.
USE_SECONDS = 60.0
# How long a token is cached: one that another server revoked is accepted for at most this long.
CACHE_SECONDS = 1.0
MAX_CACHED = 10_000
PAGE = 500
# Held while an admin token is revoked; the time is for a process that dies meanwhile.
REVOCATION = "jobyard.tokens.revocation"
REVOCATION_SECONDS = 10.0
# 32 random bytes cannot be guessed from their hash, so no slow hash is needed.
SECRET_BYTES = 32
_TEXT = re.compile(r"jy_([0-9a-f]{12})_([A-Za-z0-9_-]{20,100})")


class TokenRecord(msgspec.Struct, frozen=True):
    info: TokenInfo
    secret_sha256: str
    previous_sha256: str = ""  # the secret before the last rotation, which is accepted until `previous_until`
    previous_until: Instant = 0


_decode = msgspec.json.Decoder(TokenRecord).decode


class CachedToken(NamedTuple):
    """A token as last read from the store."""

    until: float  # when it must be read again, by the clock
    secrets_sha256: tuple[str, ...]  # the present one, and the one before while it is accepted
    principal: Principal


class Tokens:
    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, CachedToken] = {}  # by id
        self._recent: dict[bytes, CachedToken] = {}  # by the hash of the whole token
        self._noted: dict[str, float] = {}  # when the use of a token was last written, by id
        self._noting: set[asyncio.Task[None]] = set()
        self._reading: dict[str, asyncio.Task[CachedToken | None]] = {}

    async def create(
        self,
        name: str,
        role: Role | str,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        kinds: Sequence[str] = (),
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
            kinds=_scopes("kind", kinds),
            created_at=now,
            expires_at=None if expire_seconds is None else now + round(expire_seconds * 1000),
        )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        data = msgspec.json.encode(TokenRecord(info, _hash(secret)))
        await self._store.put(COLLECTION, info.id, data, expect=0, expire_seconds=expire_seconds)
        return info, f"jy_{info.id}_{secret}"

    async def create_given(self, text: str, name: str, role: Role) -> bool:
        """Create a token whose text the caller has chosen; whether it is new.

        Once only, however often and by however many processes it is called: a token that was revoked or rotated since
        does not come back. Raises BadOption for a text that is not a token.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise BadOption("A token is jy_, 12 hexadecimal digits, _ and at least 20 letters and digits.")
        token_id, secret = found[1], found[2]
        info = TokenInfo(id=token_id, name=name, role=role, created_at=await self._store.now())
        data = msgspec.json.encode(TokenRecord(info, _hash(secret)))
        if await self._store.fetch(GIVEN, token_id) is not None:
            return False
        # In this order: a process that dies in between leaves a token that the next one finds.
        is_new = await self._store.put(COLLECTION, token_id, data, expect=0) is not None
        await self._store.put(GIVEN, token_id, b"1")
        return is_new

    async def list(self) -> list[TokenInfo]:
        """All valid tokens, oldest first."""
        found: list[TokenInfo] = []
        after: str | None = None
        while True:
            page: Sequence[Record] = await self._store.fetch_all(COLLECTION, PAGE, after)
            found += [_decode(record.data).info for record in page]
            if len(page) < PAGE:
                break
            after = page[-1].key
        uses = await self._uses()
        used = (msgspec.structs.replace(info, last_used_at=uses.get(info.id)) for info in found)
        return sorted(used, key=lambda info: (info.created_at, info.id))

    async def _uses(self) -> dict[str, Instant]:
        found: dict[str, Instant] = {}
        after: str | None = None
        while True:
            page: Sequence[Record] = await self._store.fetch_all(USES, PAGE, after)
            found |= {record.key: int(record.data) for record in page}
            if len(page) < PAGE:
                return found
            after = page[-1].key

    async def rotate(self, token_id: str, overlap_seconds: float = 0.0) -> tuple[TokenInfo, str] | None:
        """Give the token a new secret; its id, role and scope stay. None if it is not valid.

        The old secret is accepted for `overlap_seconds` more, so that all its users can change over.
        """
        options.check_seconds("overlap_seconds", overlap_seconds)
        while True:
            record = await self._store.fetch(COLLECTION, token_id)
            if record is None:
                return None
            stored, now = _decode(record.data), await self._store.now()
            secret = secrets.token_urlsafe(SECRET_BYTES)
            until = now + round(overlap_seconds * 1000)
            data = msgspec.json.encode(TokenRecord(stored.info, _hash(secret), stored.secret_sha256, until))
            left = None if stored.info.expires_at is None else max(0.001, (stored.info.expires_at - now) / 1000)
            if await self._store.put(COLLECTION, token_id, data, expect=record.version, expire_seconds=left):
                self._known.pop(token_id, None)
                self._recent.clear()
                return stored.info, f"jy_{token_id}_{secret}"

    async def revoke_admin(self, token_id: str) -> bool:
        """As `revoke`, for an admin token. Raises NotPossible if no other admin token has its whole scope.

        One at a time, whichever process: two admins that revoke themselves would otherwise each count on the other.
        """
        lock = await self._store.put(REVOCATION, REVOCATION, b"", expect=0, expire_seconds=REVOCATION_SECONDS)
        if lock is None:
            raise NotPossible(
                f"Cannot revoke token {token_id}: another admin token is being revoked. Try again in a few seconds."
            )
        try:
            admins = {info.id: info.principal for info in await self.list() if info.role is Role.ADMIN}
            revoked = admins.pop(token_id, None)
            if revoked is not None and not any(other.covers(revoked) for other in admins.values()):
                raise NotPossible(
                    f"Cannot revoke token {token_id}: it is the last admin token with its scope. "
                    "Create another one first, or revoke it from the command line on the store."
                )
            return await self.revoke(token_id)
        finally:
            await self._store.remove(REVOCATION, REVOCATION, expect=lock)

    async def revoke(self, token_id: str) -> bool:
        """Whether the token existed; other processes reject it within CACHE_SECONDS."""
        is_removed = await self._store.remove(COLLECTION, token_id)
        await self._store.remove(USES, token_id)
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
        secret = _hash(parts.group(2))
        if known is None or not any(hmac.compare_digest(each, secret) for each in known.secrets_sha256):
            return None
        self._note_use(parts.group(1))
        if len(self._recent) >= MAX_CACHED:
            self._recent.clear()
        self._recent[hashlib.sha256(text.encode()).digest()] = known
        return known.principal

    def _note_use(self, token_id: str) -> None:
        """Write when the token was used, without making the request wait."""
        now = self._clock()
        if now - self._noted.get(token_id, -USE_SECONDS) >= USE_SECONDS:
            if len(self._noted) >= MAX_CACHED:
                self._noted.clear()
            self._noted[token_id] = now
            task = asyncio.get_running_loop().create_task(self._write_use(token_id))
            self._noting.add(task)
            task.add_done_callback(self._noting.discard)

    async def _write_use(self, token_id: str) -> None:
        with contextlib.suppress(JobyardError):  # it is written with the next use after a minute
            await self._store.put(USES, token_id, b"%d" % await self._store.now())

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
        accepted: tuple[str, ...] = (stored.secret_sha256,)
        if stored.previous_sha256 and await self._store.now() < stored.previous_until:
            accepted += (stored.previous_sha256,)
        known = CachedToken(started + CACHE_SECONDS, accepted, stored.info.principal)
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
