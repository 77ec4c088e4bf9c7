"""A worker that is frozen past its lease and wakes: whatever it still says is refused."""

from __future__ import annotations

import signal
import sqlite3

import pytest
from tests.story.engines import on_every_store
from tests.story.scene import Process, Scene

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

WORDS = ("done", "progress", "log")


@on_every_store
async def test_what_a_frozen_worker_says_after_its_lease_is_refused(scene: Scene) -> None:
    frozen: dict[str, Process] = {}
    late: dict[str, str] = {}
    for word in WORDS:
        await scene.configure(word)
        [frozen[word]] = await scene.workers(1, queues=(word, f"only-{word}"))
        late[word] = await scene.enqueue("late", {"word": word}, queue=word)
        await scene.until(lambda word=word: scene.marks.has(f"first-{word}"), f"{word} runs")
        await _freeze(scene, frozen[word])
    [other] = await scene.workers(1, queues=WORDS)
    await scene.until(lambda: scene.marks.count("second-") == len(WORDS), "all three run elsewhere")

    # The second attempts hold the jobs while the first ones speak.
    for word in WORDS:
        scene.marks.put(f"speak-{word}")
        frozen[word].send(signal.SIGCONT)
    # The woken workers go on with other jobs, and an exchange settles before it claims: the late word was judged.
    following = [await scene.enqueue("span", {"seconds": 0.01}, queue=f"only-{word}") for word in WORDS]
    for word, job in zip(WORDS, await scene.done(*following), strict=True):
        assert (job.state, job.worker) == (State.COMPLETED, frozen[word].name)
    assert scene.marks.has("spoken-done")
    assert scene.marks.has("refused-progress")
    assert scene.marks.has("refused-log")
    for job_id in late.values():
        job = await scene.yard.get(job_id)
        assert (job.state, job.worker, job.attempt, job.deaths) == (State.RUNNING, other.name, 1, 1)
        # Both reports reached the store's writer before anybody could tell the worker that the lease was gone.
        assert (job.progress, job.log) == (None, ())

    for word in WORDS:
        scene.marks.put(f"finish-{word}")
    for job in await scene.done(*late.values()):
        assert (job.state, job.worker, job.attempt, job.deaths) == (State.COMPLETED, other.name, 1, 1)
        assert (job.progress, job.log) == (None, ())
    await scene.stop([other, *frozen.values()])
    history = (await scene.judge()).history
    assert history.refused == 1
    assert history.reclaimed == len(WORDS)


async def _freeze(scene: Scene, worker: Process) -> None:
    """Stop it inside its handler, not inside a transaction: then it would hold the write lock while it sleeps."""
    while True:
        worker.send(signal.SIGSTOP)
        await scene.until(lambda: worker.is_stopped, f"{worker.name} stands still")
        if not scene.url.startswith("sqlite:"):
            return  # a server ends what it was asked to do, and no lock waits for the client
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
