"""Nothing is lost by default: failures stay for a week and results for an hour, however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard import Jobyard
from jobyard.errors import JobFailed

FAILURES, RESULTS = 300, 500


async def test_300_failed_jobs_are_300_dead_letters(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path / 'jobs.db'}")

    @yard.job(queue="mail", max_attempts=1)
    async def send(address: str) -> None:
        raise ConnectionError(address)

    async with yard:
        jobs = await yard.enqueue_many(*(send.call(f"user-{number}") for number in range(FAILURES)))
        async with yard.worker(concurrency=20):
            for job in jobs:
                with pytest.raises(JobFailed):
                    await job.result(timeout=60)
        while await yard.store.prune():
            pass
        dead = [job async for job in yard.dead_letters()]
        assert len(dead) == FAILURES
        assert {job.payload["address"] for job in dead} == {f"user-{number}" for number in range(FAILURES)}


async def test_500_results_awaited_one_after_another_are_all_found(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path / 'jobs.db'}")

    @yard.job
    async def double(number: int) -> int:
        return 2 * number

    async with yard:
        jobs = await yard.enqueue_many(*(double.call(number) for number in range(RESULTS)))
        async with yard.worker(concurrency=20):
            await jobs[-1].result(timeout=60)
            results = [await job.result(timeout=60) for job in jobs]
        assert results == [2 * number for number in range(RESULTS)]
