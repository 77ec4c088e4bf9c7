"""Few connections and many callers, some of whom change their mind in the middle of a command."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.servers import Server
from tests.story.engines import CONNECTIONS
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size
from tests.support import PATIENCE_SECONDS

from jobyard.config.store_factory import make_store
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store
from jobyard.testing.history import RecordingStore

pytestmark = [pytest.mark.story, pytest.mark.timeout(600 if SOAK else 300)]

CALLERS = size(50, 200)
LEASE_SECONDS = 1.0
# One for waking and one for what must not be kept waiting may stand beside the pool.
EXTRA = 2


@pytest.fixture(params=[1, 2])
def limit(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def store(harness: Harness, endpoint: Server, url: str, limit: int) -> AsyncIterator[Store]:
    await harness.configure()
    store = RecordingStore(
        make_store(url.replace(f"connections={CONNECTIONS}", f"connections={limit}")), harness.folder / "crowd.history"
    )
    await store.open()
    yield store
    await harness.yard.store.close()  # its connections would be counted
    await harness.until(lambda: endpoint.connections() <= limit + EXTRA, "the store keeps to its limit")
    await store.close()
    await harness.until(lambda: endpoint.connections() == 0, "the store has closed all its connections")
    await harness.yard.store.open()


def job(**options: Any) -> NewJob:
    return NewJob(id=new_id(), kind="span", **options)


async def test_many_callers_share_few_connections(harness: Harness, store: Store) -> None:
    """Callers that wait for an end or for work do not block other callers."""
    [held] = await store.insert([job(queue="held")])
    waiting = [asyncio.create_task(store.wait_for_end(held.id, 600.0)) for _ in range(CALLERS)]
    watching = [asyncio.create_task(store.wait_for_work(["nothing"], 600.0)) for _ in range(CALLERS)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(_use(store) for _ in range(CALLERS)))
    [lease] = (await store.exchange("w", [], ["held"], 1, 15.0)).leases
    await store.exchange("w", [Settlement(lease.key, judge(lease, Done()))], ["held"], 0, 15.0)
    ended = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS)
    assert {one.id for one in ended if one} == {held.id}
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    await _use(store)
    await harness.verify()


async def _use(store: Store) -> None:
    [one] = await store.insert([job(queue=f"own-{new_id()}")])
    found = await store.get(one.id)
    assert found is not None
    assert found.id == one.id
    assert [each.id for each in (await store.find(Filter(ids=(one.id,)))).jobs] == [one.id]


async def test_commands_are_cancelled_at_random_moments(harness: Harness, store: Store) -> None:
    """No answer reaches another caller, no connection is lost, and the counts stay true."""
    chance = random.Random(harness.title)
    held: list[Lease] = []

    async def insert() -> None:
        await store.insert([job(group=chance.choice("abc")) for _ in range(3)])

    async def exchange() -> None:
        some = [held.pop() for _ in range(min(3, len(held)))]
        settlements = [Settlement(lease.key, judge(lease, Done())) for lease in some]
        held.extend((await store.exchange("w", settlements, ["default"], 3, LEASE_SECONDS)).leases)

    async def record() -> None:
        key = new_id()
        await store.put("own", key, key.encode())
        found = await store.fetch("own", key)
        assert found is not None
        assert found.data == key.encode(), "a response to another call"

    async def find() -> None:
        await store.find(Filter(states=()))

    async def wait() -> None:
        await store.wait_for_work(["nothing"], 0.01)

    async def extend() -> None:
        await store.extend("w", [lease.key for lease in held[:3]], LEASE_SECONDS)

    verbs = (insert, exchange, record, find, wait, extend, record, exchange)
    await asyncio.gather(*(_change_ones_mind(chance, verbs) for _ in range(size(10, 20))))
    await _use(store)
    await _work_off(harness, store)
    await harness.verify()


async def _change_ones_mind(chance: random.Random, verbs: tuple[Callable[[], Awaitable[None]], ...]) -> None:
    for _ in range(size(40, 400)):
        task = asyncio.ensure_future(chance.choice(verbs)())
        await asyncio.wait([task], timeout=chance.choice([0.0, 0.0005, 0.002, 0.005, 5.0]))
        if not task.done():
            task.cancel()
        [response] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(response, BaseException) and not isinstance(response, asyncio.CancelledError):
            raise response


async def _work_off(harness: Harness, store: Store) -> None:
    """Claims whose response was lost expire; then every job is done."""

    async def nothing_left() -> bool:
        await store.reclaim()
        leases = (await store.exchange("last", [], ["default"], 100, 15.0)).leases
        settlements = [Settlement(lease.key, judge(lease, Done())) for lease in leases]
        await store.exchange("last", settlements, ["default"], 0, 15.0)
        info = await harness.queue()
        return info.waiting + info.running == 0

    await harness.until(nothing_left, "every job has ended")
