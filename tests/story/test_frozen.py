"""A worker that is frozen past its lease and wakes: whatever it still says is refused."""

from __future__ import annotations

import signal
import sqlite3

import pytest
from tests.story.scene import Process, Scene

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

WORDS = ("done", "progress", "log")


async def test_what_a_frozen_worker_says_after_its_lease_is_refused(scene: Scene) -> None:
    frozen: dict[str, Process] = {}
    late: dict[str, str] = {}
    for word in WORDS:
        await scene.configure(word)
        [frozen[word]] = await scene.workers(1, queues=(word,))
        late[word] = await scene.enqueue("late", {"word": word}, queue=word)
        await scene.until(lambda word=word: scene.marks.has(f"first-{word}"), f"{word} runs")
        await _freeze(scene, frozen[word])

    # It ends elsewhere, exactly once, while the first attempt is still in the middle of its handler.
    [other] = await scene.workers(1)
    for job in await scene.done(*late.values()):
        assert (job.state, job.attempt, job.deaths, job.worker) == (State.COMPLETED, 1, 1, other.name)
    before = await scene.all_jobs()
    await scene.stop([other])

    for word in WORDS:
        scene.marks.put(f"speak-{word}")
        frozen[word].send(signal.SIGCONT)
    # It goes on with other jobs; there is nobody else to run them now.
    following = [await scene.enqueue("span", {"seconds": 0.01}, queue=word) for word in WORDS]
    for word, job in zip(WORDS, await scene.done(*following), strict=True):
        assert (job.state, job.worker) == (State.COMPLETED, frozen[word].name)
    assert scene.marks.has("spoken-done")
    assert scene.marks.has("refused-progress")
    assert scene.marks.has("refused-log")
    await scene.stop(frozen.values())

    after = {job.id: job for job in await scene.all_jobs()}
    assert [after[job.id] for job in before] == before
    # Both reports reached the store's writer before anybody could tell the worker that the lease was gone.
    for job_id in late.values():
        job = await scene.yard.get(job_id)
        assert job.progress is None
        assert job.log == ()
    result = await scene.judge()
    assert result.history.refused == 1
    assert result.history.reclaimed == len(WORDS)


async def _freeze(scene: Scene, worker: Process) -> None:
    """Stop it inside its handler, not inside a transaction: then it would hold the write lock while it sleeps."""
    while True:
        worker.send(signal.SIGSTOP)
        await scene.until(lambda: worker.is_stopped, f"{worker.name} stands still")
        connection = sqlite3.connect(scene.database, timeout=2.0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            worker.send(signal.SIGCONT)
        else:
            return
        finally:
            connection.close()
