"""Long workflows and wide maps: the memory of the worker does not grow with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.story.harness import Harness, Process
from tests.story.side_by_side import on_each_store
from tests.story.sizes import SOAK, size

from jobyard import Job, State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

STEPS, ITEMS, AT_MOST = size((150, 300, 100), (1000, 10_000, 500))
# Smaller work first: connections, caches and arenas of the allocator are there before the large one is measured.
WARM_STEPS, WARM_ITEMS = STEPS // 5, ITEMS // 5
# A workflow of 1,000 steps holds its results (100 bytes each, and an object), a map of 10,000 items a page of ends.
GROWTH_BYTES = size(8 << 20, 24 << 20)
PATIENCE_SECONDS = size(60.0, 600.0)


async def run(harness: Harness, worker: Process, kind: str, **payload: int) -> tuple[Job, int]:
    """The ended workflow, and the most memory that the worker used meanwhile."""
    [job_id] = (await harness.enqueue_workflows(kind, {f"{kind}-{payload}": dict(payload)})).values()
    most = 0

    async def has_ended() -> bool:
        nonlocal most
        most = max(most, worker.memory_bytes)
        return (await harness.yard.get(job_id)).state.is_final

    await harness.until(has_ended, f"the workflow {kind} has ended", PATIENCE_SECONDS)
    return await harness.yard.get(job_id), most


async def story(harness: Harness) -> None:
    await harness.configure()
    [worker] = await harness.workers(1, concurrency=20, lease_seconds=15.0)
    for kind, small, large, more in (
        ("long", {"steps": WARM_STEPS}, {"steps": STEPS}, {}),
        ("wide", {"items": WARM_ITEMS}, {"items": ITEMS}, {"at_most": AT_MOST}),
    ):
        _, before = await run(harness, worker, kind, **small, **more)
        job, after = await run(harness, worker, kind, **large, **more)
        assert job.state is State.COMPLETED, job.reason
        assert job.result is not None
        expected = STEPS if kind == "long" else ITEMS * (ITEMS - 1) // 2
        assert job.result == expected
        assert after - before < GROWTH_BYTES, f"{kind}: {before >> 10} KiB, then {after >> 10} KiB"
        print(f"{harness.title} {kind}: {before >> 10} KiB, then {after >> 10} KiB")
    await harness.stop([worker])


async def test_the_memory_of_a_worker_is_flat(stage: Path) -> None:
    await on_each_store(story, "the memory of a worker is flat", stage)
