"""Get and find: one job, and pages of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.support import claim_one, get_job, insert, insert_one, new, settle

from jobyard.domain.job import Job, QueueSettings, State, Unique
from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

# Settings of each store for the rows visited per page.
ROWS = (
    "jobyard.stores.memory.jobs.MAX_ROWS_PER_PAGE",
    "jobyard.stores.sqlite.jobs.MAX_ROWS_PER_PAGE",
    "jobyard.stores.redis.jobs.EXAMINED_PER_COMMAND",
    "jobyard.stores.redis.jobs.MAX_EXAMINED",
    "jobyard.stores.postgres.jobs.MAX_SCANNED_ROWS",
)
# Settings of each store for the payload bytes searched per page.
SEARCHES = (
    "jobyard.stores.memory.jobs.MAX_BYTES_PER_PAGE",
    "jobyard.stores.sqlite.jobs.MAX_BYTES_PER_PAGE",
    "jobyard.stores.redis.jobs.BYTES_SEARCHED_PER_COMMAND",
    "jobyard.stores.postgres.jobs.MAX_SEARCHED_BYTES",
)


async def find_all(store: Store, where: Filter, limit: int = 50) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await store.find(where, limit, cursor)
        assert len(page.jobs) <= limit
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


async def test_get_of_an_unknown_job(store: Store) -> None:
    assert await store.get(new().id) is None


async def test_newest_first(store: Store) -> None:
    ids = await insert(store, *(new(priority=number) for number in range(5)))
    assert [job.id for job in await find_all(store, Filter())] == ids[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_all_pages_together_are_complete(store: Store, limit: int) -> None:
    ids = await insert(store, *(new(queue=str(number % 2)) for number in range(13)))
    assert [job.id for job in await find_all(store, Filter(), limit)] == ids[::-1]
    assert [job.id for job in await find_all(store, Filter(queue="1"), limit)] == ids[1::2][::-1]


async def test_new_jobs_do_not_shift_pages(store: Store) -> None:
    ids = await insert(store, *(new() for _ in range(4)))
    page = await store.find(Filter(), 2)
    await insert_one(store)
    rest = await store.find(Filter(), 2, page.cursor)
    assert [job.id for job in (*page.jobs, *rest.jobs)] == ids[::-1]


async def test_every_condition_must_hold(store: Store) -> None:
    wanted = new(kind="mail", queue="letters", group="acme", tags=("red", "blue"), unique=Unique("key"))
    others = [
        new(),
        new(kind="mail"),
        new(queue="letters"),
        new(group="acme"),
        new(tags=("red",)),
        new(unique=Unique("key")),
    ]
    await store.insert([wanted, *others])

    async def ids(where: Filter) -> set[str]:
        return {job.id for job in await find_all(store, where)}

    assert await ids(Filter(kind="mail")) == {wanted.id, others[1].id}
    assert await ids(Filter(queue="letters")) == {wanted.id, others[2].id}
    assert await ids(Filter(group="acme")) == {wanted.id, others[3].id}
    assert await ids(Filter(tag="red")) == {wanted.id, others[4].id}
    assert await ids(Filter(tag="blue")) == {wanted.id}
    assert await ids(Filter(unique_key="key")) == {wanted.id, others[5].id}
    assert await ids(Filter(ids=(others[0].id, new().id))) == {others[0].id}
    assert await ids(Filter(ids=())) == set()
    everything = Filter(
        ids=(wanted.id, others[0].id),
        queue="letters",
        group="acme",
        kind="mail",
        states=(State.PENDING,),
        tag="red",
        unique_key="key",
    )
    assert await ids(everything) == {wanted.id}
    assert await ids(Filter(queue="letters", tag="green")) == set()


async def test_find_by_state(store: Store) -> None:
    done = await insert_one(store)
    await settle(store, await claim_one(store), Done())
    active = await insert_one(store)
    await claim_one(store)
    waiting, delayed = await insert(store, new(), new(delay_seconds=60))

    async def ids(*states: State) -> list[str]:
        return [job.id for job in await find_all(store, Filter(states=states))]

    assert await ids(State.COMPLETED) == [done]
    assert await ids(State.RUNNING) == [active]
    assert await ids(State.PENDING) == [delayed, waiting]
    assert await ids(State.RUNNING, State.COMPLETED) == [active, done]
    assert await ids(State.FAILED) == []


async def test_find_returns_the_same_job_as_get(store: Store) -> None:
    job_id = await insert_one(store, tags=("a",), payload=b'{"a": [1]}', unique=Unique("key"))
    [job] = await find_all(store, Filter())
    assert job == await get_job(store, job_id)


async def test_find_by_text_in_the_payload(store: Store) -> None:
    payloads = ('{"to":"Ann@Example.org"}', '{"to":"bob@example.ORG","n":30}', '{"to":"Zoë","path":"a\\\\b%_"}')
    ann, bob, zoe = await insert(store, *(new(payload=payload.encode(), tags=("zed",)) for payload in payloads))

    async def ids(text: str, **others: str) -> list[str]:
        return [job.id for job in await find_all(store, Filter(text=text, **others))]  # type: ignore[arg-type]

    assert await ids("example.org") == [bob, ann]
    assert await ids("EXAMPLE.ORG") == [bob, ann]
    assert await ids('"n":30') == [bob]
    assert await ids("zoë") == [zoe]
    assert await ids("ZOË") == []  # case is ignored for ASCII letters only
    assert await ids("\\\\b%_") == [zoe]
    assert await ids("b%") == [zoe]
    assert await ids("a.") == []
    assert await ids("") == [zoe, bob, ann]
    assert await ids("to", tag="zed", kind="work") == [zoe, bob, ann]
    assert await ids("to", queue="letters") == []
    # Other fields are not searched, and text that JSON cannot contain matches nothing.
    for text in ("zed", "work", ann, "\0", "\ud800", "303"):
        assert await ids(text) == []


async def test_a_private_payload_is_not_searched(store: Store) -> None:
    await insert_one(store, payload=b"{}", private_payload=b'{"secret":1}')
    assert await find_all(store, Filter(text="secret")) == []


async def test_a_search_reads_a_bounded_part_per_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = [b'{"n":%d,"filler":"%s"}' % (number, b"x" * 2000) for number in range(40)]
    ids = await insert(store, *(new(payload=payload) for payload in payloads))
    for setting in SEARCHES:
        monkeypatch.setattr(setting, 3000)
    monkeypatch.setattr("jobyard.stores.redis.jobs.MAX_EXAMINED", 2000)  # one command per page
    page = await store.find(Filter(text='"n":3,'), 50)
    assert (page.jobs, page.cursor is None) == ((), False)
    assert [job.id for job in await find_all(store, Filter(text='"n":3,'))] == [ids[3]]
    assert [job.id for job in await find_all(store, Filter(text="filler"), 7)] == ids[::-1]


async def test_find_by_creation_time(store: Store, clock: ManualClock) -> None:
    first = await insert_one(store)
    clock.advance(10)
    moment = await store.now()
    second = await insert_one(store, group="a", payload=b'{"a":1}')
    clock.advance(10)
    third = await insert_one(store)

    async def ids(**where: int) -> list[str]:
        return [job.id for job in await find_all(store, Filter(**where))]  # type: ignore[arg-type]

    assert await ids(created_after=moment) == [third, second]
    assert await ids(created_after=moment + 1) == [third]
    assert await ids(created_before=moment) == [first]
    assert await ids(created_before=moment + 1) == [second, first]
    assert await ids(created_after=moment, created_before=moment + 1) == [second]
    assert await ids(created_after=moment, created_before=moment) == []
    assert await ids(created_after=-(1 << 80), created_before=1 << 80) == [third, second, first]
    [job] = await find_all(store, Filter(created_after=moment, group="a", text="A", states=(State.PENDING,)))
    assert job.id == second


async def test_jobs_that_are_much_too_old_are_not_visited(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, *(new(group="g") for _ in range(30)))
    clock.advance(3 * 3600)
    moment = await store.now()
    late = await insert(store, new(group="g"), new(group="g"))
    for setting in ROWS:
        monkeypatch.setattr(setting, 3)
    for where in (Filter(created_after=moment), Filter(created_after=moment, group="g"), Filter(created_after=0)):
        found: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages == 0 or cursor is not None:
            page = await store.find(where, 10, cursor)
            found += [job.id for job in page.jobs]
            cursor, pages = page.cursor, pages + 1
        assert (found[:2], len(found)) == (late[::-1], 32 if where.created_after == 0 else 2)
        assert (pages <= 3) == (where.created_after != 0)


async def test_an_index_finds_the_few_jobs_of_a_group_kind_queue_state_tag_or_time(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are older than hundreds of others, of which one page visits only a few."""
    for setting in ROWS:
        monkeypatch.setattr(setting, 10)
    moment = await store.now()
    rare = [new(kind="rare", queue="letters", group="few", tags=("odd",)) for _ in range(4)]
    await insert(store, *rare)
    failed = (await claim_one(store, "letters")).key.job_id
    await store.change(Action.CANCEL, [rare[1].id])
    clock.advance(2 * 3600)
    for _ in range(10):
        await insert(store, *(new(group=f"g{number % 3}") for number in range(25)))
    ids = [job.id for job in reversed(rare)]

    async def first_page(**where: Any) -> list[str]:
        return [job.id for job in (await store.find(Filter(**where), 10)).jobs]

    for where in ({"group": "few"}, {"kind": "rare"}, {"queue": "letters"}, {"tag": "odd"}):
        assert await first_page(**where) == ids, where
    assert await first_page(created_before=moment + 1) == ids
    assert await first_page(states=(State.CANCELLED,)) == [rare[1].id]
    assert await first_page(states=(State.RUNNING,)) == [failed]
    assert await first_page(group="few", kind="rare", states=(State.PENDING,)) == [rare[3].id, rare[2].id]
    assert await first_page(queue="letters", states=(State.PENDING,)) == [rare[3].id, rare[2].id]
    assert await first_page(group="nobody") == []


async def test_the_few_old_jobs_of_a_state_or_a_queue_are_found_behind_many_newer_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page reads some hundred rows, and ten sorted ones: a walk would not come to them."""
    for engine in ("sqlite", "postgres"):
        monkeypatch.setattr(f"jobyard.stores.{engine}.jobs.FEW_ROWS", 10)
    monkeypatch.setattr("jobyard.stores.sqlite.jobs.MAX_ROWS_PER_PAGE", 200)
    monkeypatch.setattr("jobyard.stores.postgres.jobs.MAX_SCANNED_ROWS", 200)
    monkeypatch.setattr("jobyard.stores.redis.jobs.MAX_EXAMINED", 200)
    monkeypatch.setattr("jobyard.stores.redis.jobs.JOBS_PER_BLOCK", 20)
    for queue in ("default", "letters"):
        await store.configure(queue, QueueSettings(keep_completed=10_000, keep_at_most=10_000))
    waiting = await insert(store, *(new(queue="letters", delay_seconds=1e6) for _ in range(20)))
    await insert(store, *(new() for _ in range(1500)))
    await complete(store, 1500)

    async def first_page(**where: Any) -> list[str]:
        return [job.id for job in (await store.find(Filter(**where), 20)).jobs]

    assert await first_page(states=(State.PENDING,)) == waiting[::-1]
    assert await first_page(queue="letters") == waiting[::-1]
    assert await first_page(queue="letters", states=(State.PENDING,)) == waiting[::-1]
    done = [job.id for job in (await store.find(Filter(states=(State.COMPLETED,)), 20)).jobs]
    await insert(store, *(new(delay_seconds=1e6) for _ in range(1500)))
    assert await first_page(states=(State.COMPLETED,)) == done
    assert await first_page(queue="default", states=(State.COMPLETED,)) == done
    assert await store.audit() == []


async def complete(store: Store, count: int) -> None:
    leases = (await store.exchange("w", [], ("default",), count, 60.0)).leases
    settled = [Settlement(lease.key, judge(lease, Done(), worker="w")) for lease in leases]
    await store.exchange("w", settled, ("default",), 0, 60.0)


async def test_find_by_a_path_in_the_payload(store: Store) -> None:
    payloads = (
        '{"user":{"id":42,"name":"Zoë"},"list":[{"a":"x y"}]}',
        '{"user":{"id":"42"},"on":true,"none":null}',
        '{"user":{"id":421,"name":"42"}}',
    )
    first, second, third = await insert(store, *(new(payload=payload.encode()) for payload in payloads))

    async def ids(*conditions: str) -> list[str]:
        return [job.id for job in await find_all(store, Filter(payload=conditions))]

    assert await ids("user.id:42") == [second, first]
    assert await ids("user.id:421") == [third]
    assert await ids("user.name:Zoë") == [first]
    assert await ids("list.0.a:x y") == [first]
    assert await ids("on:true", "user.id:42") == [second]
    assert await ids("none:null") == [second]
    assert await ids("user.id:4") == await ids("user:42") == await ids("nowhere:1") == await ids("user.id") == []
    assert await ids("user.name:42") == [third]
