"""The two reference scenarios of system A: organisations with limits, through the real store and workers."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness

from jobyard.domain.job import Job, State
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

QUEUE = "runners"
REQUESTS = {"A": 35, "B": 50, "C": 72}


@on_every_store
async def test_ten_each_then_their_own_limits(harness: Harness) -> None:
    await harness.configure(QUEUE, max_running=100, max_per_group=10)
    await harness.configure("other")
    for group, count in REQUESTS.items():
        await harness.enqueue_all([("gate", {}, {"queue": QUEUE, "group": group})] * count)
    # More slots than any limit allows, so the limits alone hold jobs back.
    workers = await harness.workers(2, concurrency=100, lease_seconds=60.0)

    await _settles_at(harness, A=10, B=10, C=10)
    info = await harness.queue(QUEUE)
    assert (info.running, info.waiting) == (30, 127)
    waiting = {group: len(await _jobs(harness, group, State.PENDING)) for group in REQUESTS}
    assert waiting == {"A": 25, "B": 40, "C": 62}
    await _says_why(harness, "B", running=10, limit=10, ahead=0)
    await _one_of_a_ends(harness)
    await _settles_at(harness, A=10, B=10, C=10)

    await harness.yard.set_limit(QUEUE, "A", 25)
    await harness.yard.set_limit(QUEUE, "B", 50)
    await _settles_at(harness, A=25, B=50, C=10)
    info = await harness.queue(QUEUE)
    assert (info.running, info.waiting) == (85, 157 - 1 - 85)
    await _says_why(harness, "A", running=25, limit=25, ahead=0)
    await _one_of_a_ends(harness)
    await _settles_at(harness, A=25, B=50, C=10)

    harness.flags.put("open-all")
    await harness.drained()
    await harness.stop(workers)
    assert (await harness.queue(QUEUE)).completed == 157
    history = (await harness.verify()).history
    assert history.claims == history.inserted


async def _settles_at(harness: Harness, **running: int) -> None:
    """Exactly this many run, also after every worker had another chance to claim."""

    async def as_said() -> bool:
        return {group.name: group.running async for group in harness.yard.groups(QUEUE)} == running

    await harness.until(as_said, f"{running} run")
    await _every_worker_claims_again(harness)
    assert await as_said()


async def _every_worker_claims_again(harness: Harness) -> None:
    """A job of another queue is claimed with all free slots open to the first queue as well."""
    seen: set[str | None] = set()
    while len(seen) < 2:
        [job] = await harness.done(await harness.enqueue("span", {"seconds": 0}, queue="other"))
        seen.add(job.worker)


async def _jobs(harness: Harness, group: str, state: State) -> list[Job]:
    """The next in turn first."""
    where = Filter(queue=QUEUE, group=group, states=(state,))
    return sorted([job async for job in Queries(harness.yard.store).walk(where)], key=lambda job: job.sequence)


async def _says_why(harness: Harness, group: str, *, running: int, limit: int, ahead: int) -> None:
    job = (await _jobs(harness, group, State.PENDING))[ahead]
    explanation = await harness.yard.explain(job.id)
    [cause] = explanation.causes
    holders = set(cause.data.pop("holders"))
    assert cause.code == "group_limit_reached"
    assert cause.data == {"group": group, "running": running, "limit": limit}
    assert holders
    assert holders <= {job.id for job in await _jobs(harness, group, State.RUNNING)}
    assert explanation.ahead_in_group == ahead
    assert explanation.sentence.startswith(f"Group {group}: {running} of {limit} running; first free when one of ")


async def _one_of_a_ends(harness: Harness) -> None:
    """A's next starts, not B's."""
    before = {group: [job.id for job in await _jobs(harness, group, State.RUNNING)] for group in REQUESTS}
    next_one = (await _jobs(harness, "A", State.PENDING))[0].id
    ends = before["A"][3]
    harness.flags.put(f"open-{ends}")
    await harness.done(ends)
    await harness.until(lambda: harness.flags.has(f"started-{next_one}"), "A's next job starts")
    await _every_worker_claims_again(harness)
    after = {group: [job.id for job in await _jobs(harness, group, State.RUNNING)] for group in REQUESTS}
    assert after["B"] == before["B"]
    assert after["C"] == before["C"]
    assert set(after["A"]) == {*before["A"], next_one} - {ends}
