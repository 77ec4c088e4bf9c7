"""A worker is killed between every two calls to the store: finished steps never run again, interrupted ones do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.story.harness import Harness
from tests.story.ledger import Line, effects, repeated_after_kept
from tests.story.side_by_side import EVERY_STORE, on_each_store
from tests.story.sizes import LEASE_SECONDS, SOAK, size
from tests.story.workflow_app import ITEMS
from tests.support import PATIENCE_SECONDS

from jobyard.domain.job import Job, State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

WORKERS = 3
STEPS = ("first", "left-one", "left-two", "right-one", "right-two", "slept", "approved", "last")
CHILDREN = ("child", *(f"item-{n}" for n in range(ITEMS)))
UNDOING = ("one", "two", "undo-two", "undo-one")
# Points at which a run of each workflow dies. Those beyond its last call are never reached.
ORDER_POINTS, SAGA_POINTS = 80, 44
# `make test` kills at a part of the points, another one on each store.
STRIDE = size(12, 1)
ORDER_DEATHS = (
    "begin-first", "before-first", "after-first", "kept-first", "after-left-two", "before-approved", "after-item-1"
)  # fmt: skip
SAGA_DEATHS = ("before-undo-two", "after-undo-two", "after-undo-one")


def points(harness: Harness, count: int) -> range:
    engine = harness.title.rpartition("[")[2].rstrip("]")
    return range(EVERY_STORE.index(engine) * 4 % STRIDE, count, STRIDE)


def orders(harness: Harness, kind: str, count: int, deaths: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Payloads by name: those that die at a call to the store, and those that die in their own code."""
    named = {f"{kind}-{point}": {"kill_at": point} for point in points(harness, count)}
    for death in deaths[EVERY_STORE.index(harness.title.rpartition("[")[2].rstrip("]")) % size(3, 1) :: size(3, 1)]:
        named[f"{kind}-{death}"] = {}
        harness.flags.put(f"die-{kind}-{death}-{death}")
    return named


def check_order(job: Job, own: list[Line]) -> None:
    assert job.state is State.COMPLETED, job.reason
    died, done = sum(line.word == "died" for line in own), effects(own)
    assert set(done) == {*STEPS, *CHILDREN}
    assert max(done.values()) <= 1 + died, done
    assert done.total() <= len(done) + 2 * died, done  # one kill, and at most two steps side by side


def check_saga(job: Job, own: list[Line]) -> None:
    assert (job.state, job.reason) == (State.FAILED, "broken")
    died, done = sum(line.word == "died" for line in own), effects(own)
    assert set(done) == set(UNDOING)
    assert done.total() <= len(UNDOING) + died, done
    order = [line.what for line in own if line.word == "did"]
    assert order == sorted(order, key=UNDOING.index)


async def story(harness: Harness) -> None:
    await harness.configure()
    ids = await harness.enqueue_workflows("order", orders(harness, "order", ORDER_POINTS, ORDER_DEATHS))
    sagas = await harness.enqueue_workflows("saga", orders(harness, "saga", SAGA_POINTS, SAGA_DEATHS))
    for job_id in list(ids.values())[::2]:  # before the wait; the others are signalled while they wait
        await harness.yard.signal(job_id, "approved", "yes")
    pool = await harness.start_pool(
        "worker", WORKERS, concurrency=1, lease_seconds=LEASE_SECONDS, obeys_kill_orders=True
    )
    for job_id in list(ids.values())[1::2]:
        await harness.until(
            lambda job_id=job_id: harness.is_waiting_for(job_id, "signal approved"),
            "it waits",
            size(PATIENCE_SECONDS, 600.0),
        )
        await harness.yard.signal(job_id, "approved", "yes")
    await harness.drained(size(PATIENCE_SECONDS, 600.0))
    await harness.stop([pool])
    ended = dict(zip([*ids, *sagas], await harness.done(*ids.values(), *sagas.values()), strict=True))

    lines = harness.ledger.read()
    assert sum(line.word == "died" for line in lines) >= size(8, 80)
    assert repeated_after_kept(lines) == []
    for name, job in ended.items():
        own = [line for line in lines if line.job == name]
        try:
            (check_order if name in ids else check_saga)(job, own)
        except AssertionError as error:
            raise AssertionError(f"{name}: {job.errors} after {[tuple(line[1:4]) for line in own]}") from error
    delayed = [job for job in await harness.all_jobs() if job.kind == "work" and job.state is not State.COMPLETED]
    assert {job.state for job in delayed} == {State.CANCELLED}
    await harness.verify()


async def test_workflows_are_killed_at_every_point(stage: Path) -> None:
    await on_each_store(story, "workflows are killed at every point", stage)
