"""`yard.blocking()` without a block: opened by its first call, in the loop in which the yard is open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support import python

from jobyard import Jobyard
from jobyard.errors import NotPossible

PROGRAM = """
import logging, multiprocessing, os, sys
from concurrent.futures import ThreadPoolExecutor
from jobyard import Jobyard

# On a busy machine each step of a loop may be slow, which the development mode reports.
logging.getLogger("asyncio").setLevel(logging.ERROR)
yard = Jobyard("sqlite:///jobs.db")
wait = yard.blocking()


@yard.job
def work(number: int) -> None: ...


def add(number: int) -> str:
    return wait(work.enqueue(number)).id


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(add, range(20)))
    child = os.fork()
    if child == 0:
        add(20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(job.payload["number"] for job in wait(yard.jobs(page_size=5))) == list(range(21))
    print("done")
"""


def test_threads_and_forks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    response = python("-X", "dev", "-W", "error", "program.py", cwd=tmp_path)
    assert (response.stdout, response.stderr, response.returncode) == ("done\n", "", 0)


async def test_a_plain_handler_enqueues_the_next_job() -> None:
    yard = Jobyard("memory://")
    wait = yard.blocking()

    @yard.job
    def second(number: int) -> int:
        return number + 1

    @yard.job
    def first(number: int) -> str:
        return wait(second.enqueue(number)).id

    async with yard, yard.worker():
        following = await (await first.enqueue(1)).result(timeout=60)
        assert await yard.result(following, timeout=20) == 2
        assert await asyncio.to_thread(lambda: wait(yard.get(following)).kind) == "second"
        with pytest.raises(NotPossible, match="await"):
            wait(yard.queues())


def test_a_block_that_has_ended() -> None:
    yard = Jobyard("memory://")
    with yard.blocking() as wait:
        assert wait(yard.queues()) == []
    with pytest.raises(RuntimeError, match="has ended"):
        wait(yard.queues())
