"""Cost of claims and inserts on Redis, counted in commands: independent of backlog, history and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.servers import RedisServer
from tests.servers.absent import Absent
from tests.servers.fixtures import absent
from tests.story.sizes import size

from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.state import Settlement, Transition
from jobyard.stores.redis import RedisStore
from jobyard.testing.clock import ManualClock

DONE = Transition(to=State.COMPLETED, result=b"null")
LIVE_GROUPS, JOBS_EACH, BATCH, EXCHANGES = 40, 30, 50, 10
DUE_EACH = size(60, 2_000)
BLOCKED, GROUPS, FINISHED = size((12_000, 6_000, 4_000), (200_000, 100_000, 20_000))
AT_ONCE = 5_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A private server: all its commands are counted."""
    try:
        server = RedisServer(appendonly="no")
    except Absent as error:
        absent(error)
    with server:
        yield server


def count(server: RedisServer) -> tuple[int, int]:
    """Commands executed and keys looked up so far; INFO itself looks up none."""
    commands = server.ask("INFO", "commandstats").decode()
    stats = server.ask("INFO", "stats").decode()
    ours = [int(calls) for name, calls in re.findall(r"cmdstat_(\S+?):calls=(\d+)", commands) if name != "info"]
    keys = re.findall(r"keyspace_(?:hits|misses):(\d+)", stats)
    return sum(ours), sum(map(int, keys))


async def filled(server: RedisServer, prefix: str, *, large: bool) -> RedisStore:
    """A queue whose groups may run nothing, except those with a limit of their own."""
    store = RedisStore(server.url, prefix=prefix)
    await store.open()
    await store.configure("q", QueueSettings(max_per_group=0))
    if large:
        await _fill_history(store)
    for group in range(LIVE_GROUPS):
        await store.set_limit("q", f"live-{group:03}", 10)
    await store.insert(
        [
            NewJob(id=f"{prefix}-live-{group}-{number}", kind="k", queue="q", group=f"live-{group:03}")
            for number in range(JOBS_EACH)
            for group in range(LIVE_GROUPS)
        ]
    )
    return store


async def _fill_history(store: RedisStore) -> None:
    for start in range(0, FINISHED, AT_ONCE):
        await store.insert([NewJob(id=f"done-{start + number}", kind="k", queue="q") for number in range(AT_ONCE)])
        leases = (await store.exchange("w", [], ["q"], AT_ONCE, 60)).leases
        await store.exchange("w", [Settlement(lease.key, DONE) for lease in leases], ["q"], 0, 60)
    for start in range(0, BLOCKED, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        await store.insert(
            [NewJob(id=f"wait-{n}", kind="k", queue="q", group=f"blocked-{n % GROUPS}") for n in numbers]
        )


async def costs(server: RedisServer, store: RedisStore) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    settlements: list[Settlement] = []
    for _ in range(EXCHANGES):
        before = count(server)
        leases = (await store.exchange("w", settlements, ["q"], BATCH, 60)).leases
        after = count(server)
        assert len(leases) == BATCH
        settlements = [Settlement(lease.key, DONE) for lease in leases]
        found.append((after[0] - before[0], after[1] - before[1]))
    return found


@pytest.mark.timeout(600)
async def test_claim_cost_is_independent_of_the_backlog(server: RedisServer) -> None:
    small = await filled(server, "small", large=False)
    few = await costs(server, small)
    await small.close()
    large = await filled(server, "large", large=True)
    many = await costs(server, large)
    # With a full history each exchange prunes, which takes a few commands per batch.
    allowed = 10
    for (commands_few, keys_few), (commands_many, keys_many) in zip(few, many, strict=True):
        assert commands_many <= commands_few + allowed, (few, many)
        assert keys_many <= keys_few + allowed, (few, many)
    # One command per group that gets a slot, and a fixed number per batch.
    assert max(commands for commands, _ in few) < LIVE_GROUPS + 40, few
    await large.close()


async def test_insert_cost_is_independent_of_the_number_of_jobs(server: RedisServer) -> None:
    store = RedisStore(server.url)
    await store.open()
    spent: list[int] = []
    for name, jobs in (("warm", 10), ("few", 10), ("many", 1000)):
        before, _ = count(server)
        await store.insert([NewJob(id=f"{name}-{number}", kind="k", group="g") for number in range(jobs)])
        spent.append(count(server)[0] - before)
    assert spent[2] <= spent[1] + 3  # a thousand sequences may lie in two blocks, each with its own entries
    await store.close()


async def due_cost(server: RedisServer, prefix: str, jobs_each: int) -> tuple[int, int]:
    """Commands of one exchange of another queue while jobs of 60 queues are due, after the counts were read."""
    clock = ManualClock()
    store = RedisStore(server.url, clock, prefix=prefix)
    await store.open()
    names = [f"q{number}" for number in range(60)]
    await store.insert([NewJob(id=f"{prefix}-other", kind="k", queue="other")])
    for name in names:
        await store.insert(
            [NewJob(id=f"{name}-{number}", kind="k", queue=name, delay_seconds=1) for number in range(jobs_each)]
        )
    clock.advance(2)
    assert sum(info.waiting for info in await store.queues()) == 60 * jobs_each + 1
    assert sum(info.waiting for info in await store.groups("q0")) == jobs_each
    assert len(await store.ages()) == 61
    assert (
        sum([await store.client.execute("ZCARD", f"{prefix}:{{{name}}}:delayed") for name in names]) == 60 * jobs_each
    )
    before = count(server)
    assert len((await store.exchange("w", [], ["other"], 1, 60)).leases) == 1
    after = count(server)
    assert await store.audit() == []
    for _ in range(60 * jobs_each // 500 + 1):
        await store.exchange("w", [], ["other"], 0, 60)
    assert sum(info.delayed for info in await store.queues()) == 0
    assert await store.client.execute("EXISTS", f"{prefix}:due") == 0
    assert await store.audit() == []
    await store.close()
    return after[0] - before[0], after[1] - before[1]


async def test_the_cost_of_a_command_does_not_depend_on_how_many_jobs_became_due(server: RedisServer) -> None:
    few, many = await due_cost(server, "few", 20), await due_cost(server, "many", DUE_EACH)
    assert many[0] <= few[0] * 1.1
    assert many[1] <= few[1] * 1.1
