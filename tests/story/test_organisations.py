"""The two reference scenarios of system A: organisations with limits, through the real store and workers."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.scene import Scene

from jobyard.domain.job import Job, State
from jobyard.ports.admin_store import Filter

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

QUEUE = "runners"
REQUESTS = {"A": 35, "B": 50, "C": 72}


@on_every_store
async def test_ten_each_then_their_own_limits(scene: Scene) -> None:
    await scene.configure(QUEUE, max_running=100, max_per_group=10)
    await scene.configure("other")
    for group, count in REQUESTS.items():
        await scene.enqueue_all([("gate", {}, {"queue": QUEUE, "group": group})] * count)
    # More slots than any limit allows, so the limits alone hold jobs back.
    workers = await scene.workers(2, concurrency=100)

    await _settles_at(scene, A=10, B=10, C=10)
    info = await scene.queue(QUEUE)
    assert (info.running, info.waiting) == (30, 127)
    waiting = {group: len(await _jobs(scene, group, State.PENDING)) for group in REQUESTS}
    assert waiting == {"A": 25, "B": 40, "C": 62}
    await _says_why(scene, "B", running=10, limit=10, ahead=0)
    await _one_of_a_ends(scene)
    await _settles_at(scene, A=10, B=10, C=10)

    await scene.yard.set_limit(QUEUE, "A", 25)
    await scene.yard.set_limit(QUEUE, "B", 50)
    await _settles_at(scene, A=25, B=50, C=10)
    info = await scene.queue(QUEUE)
    assert (info.running, info.waiting) == (85, 157 - 1 - 85)
    await _says_why(scene, "A", running=25, limit=25, ahead=0)
    await _one_of_a_ends(scene)
    await _settles_at(scene, A=25, B=50, C=10)

    scene.marks.put("open-all")
    await scene.drained()
    await scene.stop(workers)
    assert (await scene.queue(QUEUE)).completed == 157
    history = (await scene.judge()).history
    assert history.claims == history.inserted


async def _settles_at(scene: Scene, **running: int) -> None:
    """So many run, and after every worker has had another chance to claim it is still so."""

    async def as_said() -> bool:
        return {group.name: group.running for group in await scene.yard.groups(QUEUE)} == running

    await scene.until(as_said, f"{running} run")
    await _every_worker_claims_again(scene)
    assert await as_said()


async def _every_worker_claims_again(scene: Scene) -> None:
    """A job of another queue is claimed with all free slots open to the first queue as well."""
    seen: set[str | None] = set()
    while len(seen) < 2:
        [job] = await scene.done(await scene.enqueue("span", {"seconds": 0}, queue="other"))
        seen.add(job.worker)


async def _jobs(scene: Scene, group: str, state: State) -> list[Job]:
    """The next in turn first."""
    where = Filter(queue=QUEUE, group=group, states=(state,))
    return sorted([job async for job in scene.yard.read.walk(where)], key=lambda job: job.sequence)


async def _says_why(scene: Scene, group: str, *, running: int, limit: int, ahead: int) -> None:
    job = (await _jobs(scene, group, State.PENDING))[ahead]
    explanation = await scene.yard.explain(job.id)
    [cause] = explanation.causes
    holders = set(cause.data.pop("holders"))
    assert cause.code == "group_limit_reached"
    assert cause.data == {"group": group, "running": running, "limit": limit}
    assert holders
    assert holders <= {job.id for job in await _jobs(scene, group, State.RUNNING)}
    assert explanation.ahead_in_group == ahead
    assert explanation.sentence.startswith(f"Group {group}: {running} of {limit} running; first free when one of ")


async def _one_of_a_ends(scene: Scene) -> None:
    """A's next starts, not B's."""
    before = {group: [job.id for job in await _jobs(scene, group, State.RUNNING)] for group in REQUESTS}
    next_one = (await _jobs(scene, "A", State.PENDING))[0].id
    ends = before["A"][3]
    scene.marks.put(f"open-{ends}")
    await scene.done(ends)
    await scene.until(lambda: scene.marks.has(f"started-{next_one}"), "A's next job starts")
    await _every_worker_claims_again(scene)
    after = {group: [job.id for job in await _jobs(scene, group, State.RUNNING)] for group in REQUESTS}
    assert after["B"] == before["B"]
    assert after["C"] == before["C"]
    assert set(after["A"]) == {*before["A"], next_one} - {ends}
