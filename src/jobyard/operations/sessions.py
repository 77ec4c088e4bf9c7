"""Browser sessions: a token is shown once at the login, then a cookie stands for it until it ends or is revoked."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

import msgspec

from jobyard.domain.access import Principal
from jobyard.operations.tokens import Tokens
from jobyard.ports.store import Store

COLLECTION = "jobyard.sessions"
SESSION_SECONDS = 12 * 3600.0
_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")


class _Kept(msgspec.Struct, frozen=True):
    token_id: str


_decode = msgspec.json.Decoder(_Kept).decode


class Sessions:
    def __init__(self, store: Store, tokens: Tokens, seconds: float = SESSION_SECONDS) -> None:
        self._store = store
        self._tokens = tokens
        self.seconds = seconds

    async def open(self, principal: Principal) -> str:
        """The session's text, for the cookie; the store knows only its hash."""
        text = secrets.token_urlsafe(32)
        data = msgspec.json.encode(_Kept(principal.id))
        await self._store.put(COLLECTION, _key(text), data, expect=0, expire_seconds=self.seconds)
        return text

    async def find(self, text: str) -> Principal | None:
        """Whose session it is; None once it has ended, or its token is no longer valid."""
        if not _TEXT.fullmatch(text):
            return None
        record = await self._store.fetch(COLLECTION, _key(text))
        return None if record is None else await self._tokens.holder(_decode(record.data).token_id)

    async def close(self, text: str) -> bool:
        return await self._store.remove(COLLECTION, _key(text))


def csrf_token(session: str) -> str:
    """What a page of ours sends along with a change; another site cannot know it."""
    return hmac.new(session.encode(), b"jobyard csrf", hashlib.sha256).hexdigest()


def csrf_token_fits(session: str, given: str) -> bool:
    """
    >>> csrf_token_fits("session", csrf_token("session")), csrf_token_fits("session", "é")
    (True, False)
    """
    return hmac.compare_digest(csrf_token(session).encode(), given.encode("utf-8", "replace"))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
