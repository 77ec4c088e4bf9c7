"""A worker that is frozen past its lease and wakes: whatever it still says is refused."""

from __future__ import annotations

import signal
import sqlite3

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness, Process

from jobyard.domain.job import State
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.errors import NotPossible

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

WORDS = ("done", "progress", "log")


@on_every_store
async def test_reports_of_a_frozen_worker_are_rejected_after_its_lease(harness: Harness) -> None:
    frozen: dict[str, Process] = {}
    late: dict[str, str] = {}
    for word in WORDS:
        await harness.configure(word)
        [frozen[word]] = await harness.workers(1, queues=(word, f"only-{word}"))
        late[word] = await harness.enqueue("late", {"word": word}, queue=word)
        await harness.until(lambda word=word: harness.flags.has(f"first-{word}"), f"{word} runs")
        await _freeze(harness, frozen[word])
    # A long lease, which a busy machine does not let run out.
    [other] = await harness.workers(1, queues=WORDS, lease_seconds=60.0)
    await harness.until(lambda: harness.flags.count("second-") == len(WORDS), "all three run elsewhere")

    # The second attempts hold the jobs while the first ones speak.
    for word in WORDS:
        harness.flags.put(f"speak-{word}")
        frozen[word].send(signal.SIGCONT)
    # The woken workers claim other jobs, and an exchange settles before it claims: the late settlement was processed.
    following = [await harness.enqueue("span", {"seconds": 0.01}, queue=f"only-{word}") for word in WORDS]
    for word, job in zip(WORDS, await harness.done(*following), strict=True):
        assert (job.state, job.worker) == (State.COMPLETED, frozen[word].name)
    assert harness.flags.has("spoken-done")
    assert harness.flags.has("refused-progress")
    assert harness.flags.has("refused-log")
    for job_id in late.values():
        taken = await harness.yard.get(job_id)
        assert (taken.state, taken.worker, taken.attempt, taken.deaths) == (State.RUNNING, other.name, 1, 1)
        # Both reports reached the store's writer before anybody could tell the worker that the lease was gone.
        assert (taken.progress, taken.log) == (None, ())

    for word in WORDS:
        harness.flags.put(f"finish-{word}")
    for job in await harness.done(*late.values()):
        assert (job.state, job.worker, job.attempt, job.deaths) == (State.COMPLETED, other.name, 1, 1)
        assert (job.progress, job.log) == (None, ())
    await harness.stop([other, *frozen.values()])
    history = (await harness.verify()).history
    assert history.refused == 1
    assert history.reclaimed == len(WORDS)


async def _freeze(harness: Harness, worker: Process) -> None:
    """Stop it inside its handler, not inside a transaction: then it would hold the write lock while it sleeps."""
    while True:
        worker.send(signal.SIGSTOP)
        await harness.until(lambda: worker.is_stopped, f"{worker.name} stands still")
        if not harness.url.startswith("sqlite:"):
            return  # a server ends what it was asked to do, and no lock waits for the client
        connection = sqlite3.connect(harness.database, timeout=2.0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            worker.send(signal.SIGCONT)
        else:
            return
        finally:
            connection.close()


@pytest.mark.parametrize("engine", ["redis"])  # the store that grants a job to a claim that waits on the server
async def test_a_frozen_worker_does_not_start_a_job_whose_lease_expired_before_it_woke(harness: Harness) -> None:
    [frozen] = await harness.workers(1, queues=("granted", "next"))
    await harness.done(await harness.enqueue("span", {"seconds": 0.0}, queue="granted"))
    while True:  # until the server has its claim at the moment when it is frozen
        frozen.send(signal.SIGSTOP)
        await harness.until(lambda: frozen.is_stopped, "the worker stands still")
        granted = await harness.enqueue("late", {"word": "grant"}, queue="granted")
        try:
            await harness.yard.delete(granted)  # while it stands still: it would run the job when it wakes
        except NotPossible:
            break
        frozen.send(signal.SIGCONT)
    assert (await harness.yard.get(granted)).worker == frozen.name
    # A long lease: the woken worker must not get the job because a busy machine kept this one from renewing.
    [other] = await harness.workers(1, queues=("granted",), lease_seconds=DEFAULT_LEASE_SECONDS)
    await harness.until(lambda: harness.flags.has("first-grant"), "the job runs elsewhere")
    frozen.send(signal.SIGCONT)
    following = await harness.enqueue("span", {"seconds": 0.01}, queue="next")
    await harness.done(following)
    assert not harness.flags.has("second-grant")
    harness.flags.put("speak-grant")
    [job] = await harness.done(granted)
    assert (job.worker, job.deaths) == (other.name, 1)
    await harness.stop([frozen, other])
    # Without the history: it records what workers received, and this one may withdraw its claim and receive nothing.
    assert await harness.yard.store.audit() == []
