"""Tokens: authentication, scopes, revocation, hashing."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.support import Watched

from jobyard.domain.access import Permission, Role
from jobyard.errors import BadOption, NotPossible, StoreUnavailable
from jobyard.operations.tokens import CACHE_SECONDS, COLLECTION, REVOCATION, REVOCATION_SECONDS, Tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


class Seconds:
    """A manual clock of the process."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Watched:
    return Watched(MemoryStore(clock))


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def tokens(store: Watched, seconds: Seconds) -> Tokens:
    return Tokens(store.as_store(), seconds)


async def test_a_token_stands_for_its_principal(tokens: Tokens) -> None:
    info, text = await tokens.create("ci", "submitter", queues=["builds"], groups=["acme"], kinds=["compile"])
    principal = await tokens.authenticate(text)
    assert principal is not None
    assert (principal.id, principal.name, principal.role) == (info.id, "ci", Role.SUBMITTER)
    assert principal.reaches("builds", "acme", "compile")
    assert not principal.reaches("builds", None, "compile")
    assert not principal.reaches("other", "acme", "compile")
    assert not principal.reaches("builds", "acme", "deploy")
    assert principal.may(Permission.SUBMIT)
    assert not principal.may(Permission.OPERATE)


async def test_a_token_stored_without_kinds_is_not_restricted_to_any(tokens: Tokens, store: Watched) -> None:
    info, text = await tokens.create("ci", Role.SUBMITTER, queues=["builds"])
    record = await store.as_store().fetch(COLLECTION, info.id)
    assert record is not None
    await store.as_store().put(COLLECTION, info.id, record.data.replace(b',"kinds":[]', b""))
    principal = await tokens.authenticate(text)
    assert principal is not None
    assert principal.kinds == ()
    assert principal.reaches("builds", None, "compile")


async def test_names_are_unique(tokens: Tokens) -> None:
    info, _ = await tokens.create("ci", Role.VIEWER)
    with pytest.raises(BadOption):
        await tokens.create("ci", Role.ADMIN)
    assert [each.id for each in await tokens.list()] == [info.id]
    await tokens.revoke(info.id)
    await tokens.create("ci", Role.ADMIN)


async def test_only_a_hash_of_the_secret_is_stored(tokens: Tokens, store: Watched) -> None:
    info, text = await tokens.create("ci", Role.ADMIN)
    secret = text.removeprefix(f"jy_{info.id}_")
    assert len(secret) >= 40
    record = await store.as_store().fetch(COLLECTION, info.id)
    assert record is not None
    assert secret.encode() not in record.data


@pytest.mark.parametrize("spoil", [
    lambda text: "", lambda text: "jy_", lambda text: text[:-1], lambda text: text + "x", lambda text: text.upper(),
    lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"), lambda text: "jy_000000000000_" + text[16:],
    lambda text: text + "\n", lambda text: "x" * 100_000, lambda text: "jy_é_" + text[16:],
])  # fmt: skip
async def test_a_modified_token_is_rejected(tokens: Tokens, spoil) -> None:  # type: ignore[no-untyped-def]
    _, text = await tokens.create("ci", Role.ADMIN)
    assert await tokens.authenticate(spoil(text)) is None


async def test_the_secret_of_another_token_is_rejected(tokens: Tokens) -> None:
    one, first = await tokens.create("one", Role.VIEWER)
    two, second = await tokens.create("two", Role.ADMIN)
    assert await tokens.authenticate(first.replace(one.id, two.id)) is None
    assert await tokens.authenticate(second) is not None


async def test_a_token_revoked_elsewhere_stops_within_a_second(
    tokens: Tokens, store: Watched, seconds: Seconds
) -> None:
    info, text = await tokens.create("ci", Role.ADMIN)
    assert await tokens.authenticate(text)
    assert await Tokens(store.as_store()).revoke(info.id)
    seconds.now += CACHE_SECONDS
    assert CACHE_SECONDS <= 1.0
    assert await tokens.authenticate(text) is None


async def test_a_token_revoked_here_stops_at_once(tokens: Tokens) -> None:
    info, text = await tokens.create("ci", Role.ADMIN)
    assert await tokens.authenticate(text)
    assert await tokens.revoke(info.id)
    assert await tokens.authenticate(text) is None
    assert not await tokens.revoke(info.id)


async def test_an_authenticated_token_is_cached_for_a_second(tokens: Tokens, store: Watched, seconds: Seconds) -> None:
    info, text = await tokens.create("ci", Role.ADMIN)
    assert tokens.cached(text.encode()) is None
    principal = await tokens.authenticate(text)
    assert tokens.cached(text.encode()) == principal
    assert tokens.cached(text.encode() + b"x") is None
    seconds.now += CACHE_SECONDS
    assert tokens.cached(text.encode()) is None
    assert await tokens.authenticate(text)
    assert await tokens.revoke(info.id)
    assert tokens.cached(text.encode()) is None


async def test_a_token_expires_by_the_clock_of_the_store(tokens: Tokens, clock: ManualClock, seconds: Seconds) -> None:
    info, text = await tokens.create("ci", Role.ADMIN, expire_seconds=60)
    assert info.expires_at == info.created_at + 60_000
    assert await tokens.authenticate(text)
    clock.advance(60)
    seconds.now += 60
    assert await tokens.authenticate(text) is None
    assert await tokens.list() == []


async def test_concurrent_requests_share_one_read(tokens: Tokens, store: Watched, seconds: Seconds) -> None:
    _, text = await tokens.create("ci", Role.ADMIN)
    await asyncio.gather(*(tokens.authenticate(text) for _ in range(100)))
    await tokens.authenticate(text)
    assert store.calls["fetch"] == 1
    seconds.now += CACHE_SECONDS
    await tokens.authenticate(text)
    assert store.calls["fetch"] == 2


async def test_a_cancelled_request_does_not_cancel_the_shared_read(tokens: Tokens) -> None:
    _, text = await tokens.create("ci", Role.ADMIN)
    first = asyncio.ensure_future(tokens.authenticate(text))
    second = asyncio.ensure_future(tokens.authenticate(text))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None


async def test_an_unavailable_store_is_an_error(tokens: Tokens, store: Watched) -> None:
    _, text = await tokens.create("ci", Role.ADMIN)
    store.failing = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        await tokens.authenticate(text)
    store.failing = None
    assert await tokens.authenticate(text)


async def test_list_returns_all_pages(tokens: Tokens) -> None:
    made = [(await tokens.create(f"t{number}", Role.VIEWER))[0].id for number in range(1001)]
    assert sorted(made) == sorted(info.id for info in await tokens.list())


@pytest.mark.parametrize("bad", [
    {"name": ""}, {"role": "root"}, {"queues": "builds"}, {"queues": [""]}, {"expire_seconds": 0},
    {"expire_seconds": -1}, {"groups": ["g"] * 1001},
])  # fmt: skip
async def test_invalid_options_are_rejected(tokens: Tokens, bad: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        await tokens.create(**{"name": "x", "role": "viewer", **bad})  # type: ignore[arg-type]
    assert await tokens.list() == []


async def test_rotation_replaces_the_secret_and_nothing_else(
    tokens: Tokens, clock: ManualClock, seconds: Seconds
) -> None:
    info, old = await tokens.create("ci", Role.ADMIN, queues=["builds"], expire_seconds=3600)
    rotated = await tokens.rotate(info.id, overlap_seconds=60)
    assert rotated is not None
    assert rotated[0] == info
    new = rotated[1]
    assert new != old
    assert await tokens.authenticate(new) == await tokens.authenticate(old) == info.principal
    clock.advance(61)
    seconds.now += CACHE_SECONDS
    assert await tokens.authenticate(old) is None
    assert await tokens.authenticate(new) == info.principal
    again = await tokens.rotate(info.id)
    assert again is not None
    assert await tokens.authenticate(new) is None, "without an overlap the old secret ends at once"
    clock.advance(3600)
    seconds.now += CACHE_SECONDS
    assert await tokens.authenticate(again[1]) is None, "it expires when it would have"
    assert await tokens.rotate(info.id) is None


async def test_last_use_is_written_once_a_minute(
    tokens: Tokens, store: Watched, clock: ManualClock, seconds: Seconds
) -> None:
    info, text = await tokens.create("ci", Role.ADMIN)
    [listed] = await tokens.list()
    assert listed.last_used_at is None
    before = store.calls["put"]
    for _ in range(3):
        await tokens.authenticate(text)
        await asyncio.gather(*tokens._noting)
    assert store.calls["put"] == before + 1
    [listed] = await tokens.list()
    first = listed.last_used_at
    assert first is not None
    clock.advance(90)
    seconds.now += 90
    await tokens.authenticate(text)
    await asyncio.gather(*tokens._noting)
    [listed] = await tokens.list()
    assert listed.last_used_at == first + 90_000
    await tokens.revoke(info.id)
    assert await store.fetch_all("jobyard.token_uses") == []


async def test_the_last_admin_of_a_scope_stays(tokens: Tokens) -> None:
    one, _ = await tokens.create("one", Role.ADMIN)
    await tokens.create("narrow", Role.ADMIN, queues=["builds"])
    await tokens.create("operator", Role.OPERATOR)
    with pytest.raises(NotPossible, match="last admin"):
        await tokens.revoke_admin(one.id)
    two, _ = await tokens.create("two", Role.ADMIN)
    assert await tokens.revoke_admin(one.id)
    with pytest.raises(NotPossible, match="last admin"):
        await tokens.revoke_admin(two.id)
    assert not await tokens.revoke_admin("nobody")
    assert await tokens.revoke(two.id), "with access to the store"


async def test_admins_that_revoke_themselves_at_once_leave_one(store: Watched) -> None:
    servers = [Tokens(store.as_store()) for _ in range(5)]
    admins = [(await servers[0].create(f"admin {number}", Role.ADMIN))[0].id for number in range(5)]

    async def revoke(tokens: Tokens, token_id: str) -> None:
        with contextlib.suppress(NotPossible):
            await tokens.revoke_admin(token_id)

    for _ in range(5):
        await asyncio.gather(*map(revoke, servers, admins))
    assert len(await servers[0].list()) == 1


async def test_a_revocation_that_died_holds_up_others_for_seconds(
    tokens: Tokens, clock: ManualClock, store: Watched
) -> None:
    one, _ = await tokens.create("one", Role.ADMIN)
    await tokens.create("two", Role.ADMIN)
    await store.as_store().put(REVOCATION, REVOCATION, b"", expect=0, expire_seconds=REVOCATION_SECONDS)
    with pytest.raises(NotPossible, match="Try again"):
        await tokens.revoke_admin(one.id)
    clock.advance(REVOCATION_SECONDS)
    assert await tokens.revoke_admin(one.id)
