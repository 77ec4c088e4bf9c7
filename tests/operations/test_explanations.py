"""Explanations that look beyond the queue: whether a live worker has a handler for the kind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.server.support import ApiServer

from jobyard import Jobyard
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.operations.explanations import MAX_RUNNING
from jobyard.ports.clock import SystemClock
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.routes import jobs
from jobyard.stores.memory import MemoryStore


async def waiting_job(store: MemoryStore, *workers: WorkerInfo) -> str:
    for worker in workers:
        await store.heartbeat(worker, 60)
    [inserted] = await store.insert([NewJob(id=new_id(), kind="send_mial", queue="mail")])
    return inserted.id


def worker(name: str, kinds: tuple[str, ...] | None, *queues: str) -> WorkerInfo:
    return WorkerInfo(id=name, host="h", pid=1, queues=queues, concurrency=1, kinds=kinds)


async def causes(store: MemoryStore, job_id: str) -> dict[str, dict[str, object]]:
    explanation = await Jobyard(store=store).explain(job_id)
    return {cause.code: {"sentence": cause.sentence, **cause.data} for cause in explanation.causes}


async def test_no_handler_names_the_kinds_that_are_known() -> None:
    store = MemoryStore(SystemClock())
    job_id = await waiting_job(store, worker("w1", ("jobyard.canvas", "send_mail"), "mail"))
    found = (await causes(store, job_id))["no_handler"]
    assert found["known_kinds"] == ["send_mail"]
    assert found["sentence"] == (
        "no live worker of queue mail has a handler for kind send_mial; they have handlers for send_mail"
    )


async def test_no_handler_names_the_workers_that_have_one_but_take_other_queues() -> None:
    store = MemoryStore(SystemClock())
    job_id = await waiting_job(store, worker("w1", (), "mail"), worker("w2", ("send_mial",), "slow"))
    found = (await causes(store, job_id))["no_handler"]
    assert found["workers"] == ["w2"]
    assert "these have one, but do not take the queue: w2" in str(found["sentence"])


@pytest.mark.parametrize("kinds", [None, ("send_mial",)])
async def test_a_worker_that_may_have_a_handler_is_no_cause(kinds: tuple[str, ...] | None) -> None:
    store = MemoryStore(SystemClock())
    job_id = await waiting_job(store, worker("w1", (), "mail"), worker("w2", kinds))
    assert await causes(store, job_id) == {}


async def test_without_a_worker_the_cause_is_that_there_is_none() -> None:
    store = MemoryStore(SystemClock())
    assert set(await causes(store, await waiting_job(store))) == {"no_worker"}


async def test_a_worker_says_which_kinds_it_has_handlers_for(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")

    @yard.job
    async def send_mail() -> None: ...

    async with yard, yard.worker():
        [info] = await yard.store.workers()
        assert info.kinds is not None
        assert "send_mail" in info.kinds


@pytest.mark.parametrize("queues", [["mail"], []])
async def test_a_restricted_token_does_not_see_other_kinds_and_workers(queues: list[str]) -> None:
    store = MemoryStore(SystemClock())
    job_id = await waiting_job(store, worker("w1", ("secret_kind",), "mail"))
    async with ApiServer(store, [jobs.ROUTES]).client("viewer", queues=queues) as client:
        answer = await client.get(f"/v1/jobs/{job_id}/explain")
    assert "no_handler" in answer.text
    assert ("secret_kind" in answer.text) is (not queues)


async def running_jobs(store: MemoryStore, worker_id: str, count: int) -> list[str]:
    await store.insert([NewJob(id=new_id(), kind="send_mial", queue="mail") for _ in range(count)])
    return [lease.job_id for lease in (await store.exchange(worker_id, [], ("mail",), count, 60)).leases]


async def test_workers_without_a_free_slot_are_a_cause() -> None:
    store = MemoryStore(SystemClock())
    running = await running_jobs(store, "w1", 1)
    job_id = await waiting_job(store, worker("w1", ("send_mial",), "mail"), worker("w2", ("other",), "mail"))
    found = (await causes(store, job_id))["workers_busy"]
    assert found["sentence"] == "the only slot of the workers of queue mail is taken"
    assert (found["slots"], found["workers"], found["holders"]) == (1, ["w1"], running)


async def test_one_free_slot_is_enough() -> None:
    store = MemoryStore(SystemClock())
    await running_jobs(store, "w1", 1)
    job_id = await waiting_job(store, worker("w1", None, "mail"), worker("w2", ("send_mial",), "mail"))
    assert await causes(store, job_id) == {}


async def test_a_job_that_was_handed_off_holds_no_slot() -> None:
    store = MemoryStore(SystemClock())
    await store.adopt(NewJob(id=new_id(), kind="send_mial", queue="mail"), "w1", "outside")
    assert await causes(store, await waiting_job(store, worker("w1", None, "mail"))) == {}


async def test_with_too_many_jobs_to_count_the_heartbeat_decides() -> None:
    store = MemoryStore(SystemClock())
    await running_jobs(store, "elsewhere", MAX_RUNNING + 1)
    full = msgspec.structs.replace(worker("w1", None, "mail"), running=1)
    assert set(await causes(store, await waiting_job(store, full))) == {"workers_busy"}


async def test_a_job_that_is_not_due_does_not_wait_for_a_slot() -> None:
    store = MemoryStore(SystemClock())
    await running_jobs(store, "w1", 1)
    await store.heartbeat(worker("w1", None, "mail"), 60)
    [delayed] = await store.insert([NewJob(id=new_id(), kind="send_mial", queue="mail", delay_seconds=60)])
    assert set(await causes(store, delayed.id)) == {"not_due"}


async def test_a_restricted_token_does_not_see_who_holds_the_slots() -> None:
    store = MemoryStore(SystemClock())
    [holder] = await running_jobs(store, "w1", 1)
    job_id = await waiting_job(store, worker("w1", None, "mail"))
    async with ApiServer(store, [jobs.ROUTES]).client("viewer", queues=["mail"]) as client:
        answer = await client.get(f"/v1/jobs/{job_id}/explain")
    assert "workers_busy" in answer.text
    assert holder not in answer.text
    assert "w1" not in answer.text
