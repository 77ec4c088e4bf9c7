"""Browser sessions: a cookie stands for the token of the login until the session ends or the token is revoked."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

import msgspec

from jobyard.domain.access import Principal
from jobyard.domain.instant import Instant
from jobyard.operations.tokens import Tokens
from jobyard.ports.store import Store

COLLECTION, LINKS = "jobyard.sessions", "jobyard.login_links"
LINK_SECONDS = 60.0
SESSION_SECONDS = 12 * 3600.0
_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")


class SessionRecord(msgspec.Struct, frozen=True):
    token_id: str
    expires_at: Instant = 0  # 0: opened by an earlier version


_decode = msgspec.json.Decoder(SessionRecord).decode


class Sessions:
    def __init__(self, store: Store, tokens: Tokens, seconds: float = SESSION_SECONDS) -> None:
        self._store = store
        self._tokens = tokens
        self.seconds = seconds

    async def open(self, principal: Principal) -> str:
        """Open a session; returns the value of its cookie, of which the store holds only a hash."""
        text = secrets.token_urlsafe(32)
        expires_at = await self._store.now() + round(1000 * self.seconds)
        data = msgspec.json.encode(SessionRecord(principal.id, expires_at))
        await self._store.put(COLLECTION, _key(text), data, expect=0, expire_seconds=self.seconds)
        return text

    async def find(self, text: str) -> Principal | None:
        """The principal of the session; None if it has ended, or its token is no longer valid."""
        if not _TEXT.fullmatch(text):
            return None
        record = await self._store.fetch(COLLECTION, _key(text))
        return None if record is None else await self._tokens.holder(_decode(record.data).token_id)

    async def expires_at(self, text: str) -> Instant | None:
        """When the session ends; None if it has ended, or that is not known."""
        record = await self._store.fetch(COLLECTION, _key(text)) if _TEXT.fullmatch(text) else None
        return None if record is None else _decode(record.data).expires_at or None

    async def create_link(self, token_id: str) -> str:
        """A code that opens one session with this token, within LINK_SECONDS."""
        text = secrets.token_urlsafe(32)
        data = msgspec.json.encode(SessionRecord(token_id))
        await self._store.put(LINKS, _key(text), data, expect=0, expire_seconds=LINK_SECONDS)
        return text

    async def use_link(self, text: str) -> Principal | None:
        """The principal of the link, once; None if it was used, has expired, or its token is no longer valid."""
        if not _TEXT.fullmatch(text):
            return None
        record = await self._store.fetch(LINKS, _key(text))
        # Of two requests at once only one removes it.
        if record is None or not await self._store.remove(LINKS, record.key, expect=record.version):
            return None
        return await self._tokens.holder(_decode(record.data).token_id)

    async def close(self, text: str) -> bool:
        return await self._store.remove(COLLECTION, _key(text))


def csrf_token(session: str) -> str:
    """The value that the dashboard sends with each change, and that other sites cannot know."""
    return hmac.new(session.encode(), b"jobyard csrf", hashlib.sha256).hexdigest()


def csrf_token_fits(session: str, given: str) -> bool:
    """
    >>> csrf_token_fits("session", csrf_token("session")), csrf_token_fits("session", "é")
    (True, False)
    """
    return hmac.compare_digest(csrf_token(session).encode(), given.encode("utf-8", "replace"))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
