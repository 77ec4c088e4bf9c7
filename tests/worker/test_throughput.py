"""How much a worker finishes, as its beat tells."""

from __future__ import annotations

from tests.support import eventually

from jobyard import Context, Jobyard
from jobyard.worker.throughput import MOST_QUEUES, Pace


def test_a_minute_passes() -> None:
    time = [0.0]
    pace = Pace(lambda: time[0])
    assert pace.per_minute() == {}
    for second in range(0, 120, 2):
        time[0] = float(second)
        pace.add(1, {"mail": 1, "report": 2})
    told = pace.per_minute()
    assert 28 <= told["mail"] <= 32  # thirty in the minute, counted in steps
    assert told["report"] == 2 * told["mail"]
    assert pace.completed == 60
    time[0] += 61
    assert pace.per_minute() == {}


def test_what_is_kept_and_told_is_bounded() -> None:
    time = [0.0]
    pace = Pace(lambda: time[0])
    pace.add(0, {f"queue-{number}": 1 + number for number in range(MOST_QUEUES + 10)})
    assert len(pace.per_minute()) == MOST_QUEUES
    assert "queue-0" not in pace.per_minute()
    for _ in range(1000):
        time[0] += 1
        pace.add(1, {"mail": 1})
    assert len(pace._steps) <= 13


async def test_a_beat_tells_how_much_was_finished_of_each_queue(yard: Jobyard) -> None:
    @yard.job(max_attempts=1)
    async def work(ctx: Context, fails: bool) -> None:
        if fails:
            raise ValueError("no")

    await yard.enqueue_many(*(work.call(number == 0) for number in range(3)), work.options(queue="mail").call(False))

    async def told() -> dict[str, int] | None:
        workers = await yard.store.workers()
        return workers[0].finished_per_minute if workers and sum(workers[0].finished_per_minute.values()) == 4 else None

    async with yard.worker(concurrency=2):
        assert await eventually(told) == {"default": 3, "mail": 1}
