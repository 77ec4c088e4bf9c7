"""Sessions: expiry, logout, and revocation of the token."""

from __future__ import annotations

import pytest

from jobyard.domain.access import Role
from jobyard.operations.sessions import COLLECTION, Sessions
from jobyard.operations.tokens import Tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def tokens(store: MemoryStore) -> Tokens:
    return Tokens(store)


@pytest.fixture
def sessions(store: MemoryStore, tokens: Tokens) -> Sessions:
    return Sessions(store, tokens, seconds=100)


async def opened(tokens: Tokens, sessions: Sessions) -> tuple[str, str]:
    info, text = await tokens.create("ann", Role.OPERATOR)
    principal = await tokens.authenticate(text)
    assert principal is not None
    return await sessions.open(principal), info.id


async def test_a_session_stands_for_its_token(tokens: Tokens, sessions: Sessions, store: MemoryStore) -> None:
    session, token_id = await opened(tokens, sessions)
    found = await sessions.find(session)
    assert found is not None
    assert (found.id, found.role) == (token_id, Role.OPERATOR)
    [record] = await store.fetch_all(COLLECTION)
    assert session not in record.key
    assert session.encode() not in record.data


async def test_a_session_expires(tokens: Tokens, sessions: Sessions, clock: ManualClock) -> None:
    session, _ = await opened(tokens, sessions)
    clock.advance(99)
    assert await sessions.find(session)
    clock.advance(1)
    assert await sessions.find(session) is None


async def test_a_session_ends_at_logout(tokens: Tokens, sessions: Sessions) -> None:
    session, _ = await opened(tokens, sessions)
    assert await sessions.close(session)
    assert await sessions.find(session) is None


async def test_a_session_ends_with_its_token(tokens: Tokens, sessions: Sessions) -> None:
    session, token_id = await opened(tokens, sessions)
    await tokens.revoke(token_id)
    assert await sessions.find(session) is None


@pytest.mark.parametrize("text", ["", "x", "x" * 43, "é" * 43, "x" * 100_000])
async def test_an_invalid_session_is_none(sessions: Sessions, text: str) -> None:
    assert await sessions.find(text) is None
