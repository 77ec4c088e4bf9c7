"""Records: documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from jobyard.ports.record_store import Record
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_versions_count_from_one(store: Store) -> None:
    assert await store.put("c", "k", b"a") == 1
    assert await store.put("c", "k", b"b") == 2
    assert await store.fetch("c", "k") == Record("k", 2, b"b")
    assert await store.fetch("c", "other") is None
    assert await store.fetch("other", "k") is None


async def test_compare_and_set(store: Store) -> None:
    assert await store.put("c", "k", b"a", expect=1) is None
    assert await store.fetch("c", "k") is None
    assert await store.put("c", "k", b"a", expect=0) == 1
    assert await store.put("c", "k", b"b", expect=0) is None
    assert await store.put("c", "k", b"b", expect=1) == 2
    assert await store.put("c", "k", b"c", expect=1) is None
    assert await store.fetch("c", "k") == Record("k", 2, b"b")


async def test_an_expired_document_does_not_exist(store: Store, clock: ManualClock) -> None:
    await store.put("c", "k", b"a")
    assert await store.put("c", "k", b"b", expire_seconds=10) == 2
    clock.advance(9.999)
    assert await store.fetch("c", "k") == Record("k", 2, b"b")
    clock.advance(0.001)
    assert await store.fetch("c", "k") is None
    assert await store.fetch_all("c") == []
    assert await store.remove("c", "k") is False
    assert await store.put("c", "k", b"c", expect=2) is None
    assert await store.put("c", "k", b"c", expect=0) == 1


async def test_writing_again_removes_the_expiry(store: Store, clock: ManualClock) -> None:
    await store.put("c", "k", b"a", expire_seconds=10)
    await store.put("c", "k", b"b")
    clock.advance(1e6)
    assert await store.fetch("c", "k") == Record("k", 2, b"b")


async def test_documents_by_key_in_pages(store: Store) -> None:
    for key in ("b", "a", "d", "c"):
        await store.put("c", key, key.encode())
    await store.put("other", "x", b"x")
    assert [record.key for record in await store.fetch_all("c")] == ["a", "b", "c", "d"]
    assert await store.fetch_all("c", limit=2) == [Record("a", 1, b"a"), Record("b", 1, b"b")]
    assert [record.key for record in await store.fetch_all("c", limit=2, after="b")] == ["c", "d"]


async def test_expired_documents_do_not_shorten_a_page(store: Store, clock: ManualClock) -> None:
    await store.put("c", "a", b"a", expire_seconds=1)
    await store.put("c", "b", b"b")
    clock.advance(1)
    assert [record.key for record in await store.fetch_all("c", limit=1)] == ["b"]


async def test_remove(store: Store) -> None:
    assert await store.remove("c", "k") is False
    await store.put("c", "k", b"a")
    assert await store.remove("c", "k", expect=2) is False
    assert await store.remove("c", "k", expect=1) is True
    assert await store.fetch("c", "k") is None
    assert await store.put("c", "k", b"b") == 1


async def test_logs_are_read_in_order_from_any_point(store: Store, clock: ManualClock) -> None:
    first = await store.append("audit", b"1")
    clock.advance(1)
    second = await store.append("audit", b"2")
    await store.append("other", b"x")
    third = await store.append("audit", b"3")
    assert 0 < first < second < third
    entries = await store.read("audit")
    assert [(entry.number, entry.data) for entry in entries] == [(first, b"1"), (second, b"2"), (third, b"3")]
    assert [entry.at for entry in entries] == [clock.now() - 1000, clock.now(), clock.now()]
    assert [entry.data for entry in await store.read("audit", after=first)] == [b"2", b"3"]
    assert [entry.data for entry in await store.read("audit", after=first, limit=1)] == [b"2"]
    assert await store.read("audit", after=third) == []
    assert await store.read("nothing") == []


async def test_a_trimmed_log_continues(store: Store) -> None:
    first, second, third = [await store.append("audit", data) for data in (b"1", b"2", b"3")]
    await store.append("other", b"x")
    assert await store.trim("audit", first - 1) == 0
    assert await store.trim("audit", second) == 2
    assert await store.trim("audit", second) == 0
    assert [(entry.number, entry.data) for entry in await store.read("audit")] == [(third, b"3")]
    assert len(await store.read("other")) == 1
    assert await store.append("audit", b"4") > third
    assert [entry.data for entry in await store.read("audit", after=first)] == [b"3", b"4"]


async def test_log_numbers_ascend_after_all_entries_are_trimmed(store: Store) -> None:
    last = [await store.append("audit", data) for data in (b"1", b"2", b"3")][-1]
    assert await store.trim("audit", last + 1000) == 3
    assert await store.read("audit") == []
    following = await store.append("audit", b"4")
    assert following > last
    assert [entry.data for entry in await store.read("audit", after=last)] == [b"4"]
    assert await store.trim("audit", following) == 1
    assert await store.append("audit", b"5") > following


async def test_trimming_nothing(store: Store) -> None:
    assert await store.trim("nothing", 10) == 0
    assert await store.append("nothing", b"1") > 0
    assert len(await store.read("nothing")) == 1
