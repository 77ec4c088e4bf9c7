"""Throughput of a worker, as its heartbeat shows it."""

from __future__ import annotations

from tests.support import eventually

from jobyard import Context, Jobyard
from jobyard.worker.throughput import MAX_QUEUES, Throughput


def test_a_minute_passes() -> None:
    time = [0.0]
    throughput = Throughput(lambda: time[0])
    assert throughput.per_minute() == {}
    for second in range(0, 120, 2):
        time[0] = float(second)
        throughput.add(1, {"mail": 1, "report": 2})
    rates = throughput.per_minute()
    assert 28 <= rates["mail"] <= 32  # thirty in the minute, counted in steps
    assert rates["report"] == 2 * rates["mail"]
    assert throughput.completed == 60
    time[0] += 61
    assert throughput.per_minute() == {}


def test_the_kept_and_reported_counts_are_bounded() -> None:
    time = [0.0]
    throughput = Throughput(lambda: time[0])
    throughput.add(0, {f"queue-{number}": 1 + number for number in range(MAX_QUEUES + 10)})
    assert len(throughput.per_minute()) == MAX_QUEUES
    assert "queue-0" not in throughput.per_minute()
    for _ in range(1000):
        time[0] += 1
        throughput.add(1, {"mail": 1})
    assert len(throughput._steps) <= 13


async def test_a_heartbeat_counts_the_finished_jobs_of_each_queue(yard: Jobyard) -> None:
    @yard.job(max_attempts=1)
    async def work(ctx: Context, fails: bool) -> None:
        if fails:
            raise ValueError("no")

    await yard.enqueue_many(*(work.call(number == 0) for number in range(3)), work.options(queue="mail").call(False))

    async def rates() -> dict[str, int] | None:
        workers = await yard.store.workers()
        return workers[0].finished_per_minute if workers and sum(workers[0].finished_per_minute.values()) == 4 else None

    async with yard.worker(concurrency=2):
        assert await eventually(rates) == {"default": 3, "mail": 1}
