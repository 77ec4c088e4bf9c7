"""A worker that takes all queues except those that have a worker of their own."""

from __future__ import annotations

from tests.support import eventually

from jobyard import Jobyard
from jobyard.domain.job import State


async def test_excluded_queues_are_left_to_others(yard: Jobyard) -> None:
    ran: list[str] = []

    @yard.job
    async def note(text: str) -> None:
        ran.append(text)

    yard.excluded_queues = ("runners",)
    async with yard.worker(concurrency=2):
        kept = await yard.enqueue("note", {"text": "excluded"}, queue="runners")
        await note.options(queue="new").enqueue("taken")
        await eventually(lambda: ran == ["taken"])
        assert (await yard.get(kept.id)).state is State.PENDING
        async with yard.worker(queues=["runners"]):
            await eventually(lambda: ran == ["taken", "excluded"])
