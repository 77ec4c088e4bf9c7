"""Every verb of the client, against a real server on a real store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.client.support import Site
from tests.support import eventually

from jobyard.client import Client, JobFilter, RemoteJob, job_request
from jobyard.client.transport import AT_ONCE
from jobyard.domain.job import State, Unique, UniqueScope
from jobyard.errors import (
    BadInput,
    BadOption,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotFound,
    NotPossible,
    PayloadNotJson,
    ResultNotReady,
    WorkerNotFound,
)
from jobyard.ports.admin_store import Action


async def test_enqueue_and_await_the_result(here: Site, client: Client) -> None:
    handle = await client.enqueue("send", {"to": "ann"}, queue="mail")
    assert handle.created
    async with here.yard.worker():
        assert await handle.result(60) == {"to": "ann", "copies": 1}
    job = await handle.info()
    assert (job.state, job.queue, job.payload, job.attempt) == (State.COMPLETED, "mail", {"to": "ann"}, 1)
    assert [each.what for each in job.timeline][-1] == "finished"


async def test_more_waiting_requests_than_connections(here: Site) -> None:
    async with Client(here.url, await here.token(), timeout=10, patience=30) as client:
        found = await client.enqueue_many(
            job_request("send", {"to": str(number)}, queue="mail") for number in range(AT_ONCE + 30)
        )
        handles = [each for each in found if isinstance(each, RemoteJob)]
        waiting = [asyncio.ensure_future(handle.result(60)) for handle in handles]
        await eventually(lambda: not client._transport.may_wait)
        assert (await client.queue("mail")).waiting == len(handles)  # others are served meanwhile
        async with here.yard.worker(concurrency=10):
            results = await asyncio.gather(*waiting)
    assert [result["to"] for result in results] == [str(number) for number in range(AT_ONCE + 30)]


async def test_every_option_is_sent(here: Site, client: Client) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    handle = await client.enqueue(
        "send",
        {"to": "ann"},
        queue="mail",
        group="team-a",
        priority=7,
        run_at=at,
        max_attempts=5,
        timeout=12.5,
        backoff=[1, 2],
        unique=Unique("one", UniqueScope.PERIOD, 60.0),
        tags=["x", "y"],
        private={"secret": 1},
    )
    job = await here.yard.get(handle.id)
    assert (job.queue, job.group, job.priority, job.max_attempts) == ("mail", "team-a", 7, 5)
    assert (job.timeout_seconds, job.unique_key) == (12.5, "one")
    assert set((await handle.info()).tags) == {"x", "y"}
    assert job.run_at is not None
    assert abs((job.run_at - at).total_seconds()) < 0.002
    assert job.backoff.seconds == (1.0, 2.0)  # type: ignore[union-attr]
    assert "secret" not in job.payload
    again = await client.enqueue("send", {"to": "bob"}, queue="mail", unique=Unique("one", UniqueScope.PERIOD, 60.0))
    assert (again.created, again.id) == (False, handle.id)
    delayed = await (await client.enqueue("send", {"to": "ann"}, delay=timedelta(minutes=5))).info()
    assert delayed.run_at is not None and delayed.run_at > delayed.created_at


async def test_a_job_without_result_raises_the_same_errors_as_locally(here: Site, client: Client) -> None:
    failing = await client.enqueue("fail", queue="mail", max_attempts=1)
    waiting = await client.enqueue("send", {"to": "ann"}, delay=3600)
    with pytest.raises(ResultNotReady):
        await waiting.result(0.05)
    async with here.yard.worker():
        with pytest.raises(JobFailed, match="no way"):
            await failing.result(60)
    await waiting.cancel("not needed")
    with pytest.raises(JobCancelled, match="not needed"):
        await waiting.result(60)


async def test_jobs_of_a_batch_are_accepted_or_rejected_separately(here: Site, client: Client) -> None:
    await client.configure("small", max_waiting=2)
    jobs = [job_request("send", {"to": str(number)}, queue="small") for number in range(3)]
    jobs += [job_request("send", {"to": "big"}, queue="mail")] * 2
    found = await client.enqueue_many(jobs)
    taken = [each for each in found if isinstance(each, RemoteJob)]
    assert [type(each).__name__ for each in found].count("QueueFull") == 1
    assert len({each.id for each in taken}) == 4
    assert len([job async for job in client.jobs(JobFilter(queue="mail"))]) == 2


async def test_more_jobs_than_fit_one_batch(client: Client) -> None:
    big = "x" * 300_000
    found = await client.enqueue_many(job_request("send", {"to": big, "number": number}) for number in range(9))
    assert all(isinstance(each, RemoteJob) for each in found)
    numbers = [job.payload["number"] async for job in client.jobs(page_size=2)]
    assert sorted(numbers) == list(range(9))


async def test_lists_by_filter_and_page_by_page(here: Site, client: Client) -> None:
    for number in range(5):
        await client.enqueue(
            "send", {"to": f"ann {number}"}, queue="mail", group="a", tags=["odd"] if number % 2 else []
        )
    await client.enqueue("other", {"to": "bob"})
    assert len([job async for job in client.jobs(JobFilter(queue="mail", state=(State.PENDING,)), page_size=2)]) == 5
    assert [job.payload["to"] async for job in client.jobs(JobFilter(tag="odd"))] == ["ann 3", "ann 1"]
    assert [job.kind async for job in client.jobs(JobFilter(text="BOB"))] == ["other"]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert [job async for job in client.jobs(JobFilter(created_after=later))] == []
    first = await client.page(page_size=4)
    rest = await client.page(page_size=4, page_token=str(first.next_page_token))
    assert len(first.items) == 4 and len(rest.items) == 2


async def test_changes_to_one_job(here: Site, client: Client) -> None:
    handle = await client.enqueue("send", {"to": "ann"}, queue="mail", delay=3600)
    assert (await client.explain(handle.id)).causes[0].code == "not_due"
    assert (await client.prioritise(handle.id, 9)).priority == 9
    await client.run_now(handle.id)
    assert "not_due" not in {cause.code for cause in (await client.explain(handle.id)).causes}
    assert await client.signal(handle.id, "go", {"x": 1}) is False
    assert (await client.cancel(handle.id, "enough")).reason == "enough"
    assert (await client.retry(handle.id)).state is State.PENDING
    with pytest.raises(NotPossible, match="PENDING"):
        await client.retry(handle.id)
    await client.delete(handle.id)
    with pytest.raises(JobNotFound):
        await client.get(handle.id)
    with pytest.raises(JobNotFound):
        await client.delete(handle.id)


async def test_changes_to_many_and_dead_letters(here: Site, client: Client) -> None:
    ids = [(await client.enqueue("fail", queue="mail", max_attempts=1)).id for _ in range(3)]
    other = await client.enqueue("send", {"to": "ann"}, queue="slow")
    async with here.yard.worker(queues=["mail"]):
        for job_id in ids:
            await client.end(job_id, 60)
    assert {job.id async for job in client.dead_letters()} == set(ids)
    assert (await client.redrive(ids=ids[:1])).changed == 1
    assert (await client.redrive(where=JobFilter(queue="mail"))).changed == 2
    response = await client.change(Action.CANCEL, ids=[*ids, other.id, "unknown"], reason="stop")
    assert (response.changed, response.unchanged) == (4, 0)
    assert (await client.change(Action.DELETE, where=JobFilter(queue="mail"))).changed == 3
    with pytest.raises(BadInput):
        await client.change(Action.DELETE)
    assert (await client.retry(other.id)).state is State.PENDING
    assert (await client.change(Action.PRIORITISE, ids=[other.id], priority=4)).changed_ids == (other.id,)
    assert (await client.change(Action.PRIORITISE, ids=[other.id], priority=0)).changed == 1
    assert (await client.get(other.id)).priority == 0
    with pytest.raises(BadInput, match="priority"):
        await client.change(Action.PRIORITISE, ids=[other.id])


async def test_queues_groups_and_limits(here: Site, client: Client) -> None:
    made = await client.configure("mail", max_running=5, max_per_group=2, keep_failed=7)
    assert (made.settings.max_running, made.settings.keep_failed) == (5, 7)
    changed = await client.configure("mail", max_running=None)
    assert (changed.settings.max_running, changed.settings.max_per_group, changed.settings.keep_failed) == (None, 2, 7)
    for number in range(3):
        await client.enqueue("send", {"to": "ann"}, queue="mail", group=f"team-{number}")
    assert (await client.queue("mail")).waiting == 3
    assert [queue.name for queue in await client.queues()] == ["mail"]
    await client.pause("mail")
    assert (await client.queue("mail")).paused
    await client.resume("mail")
    await client.pause("mail", "team-1")
    await client.set_limit("mail", "team-2", 0)
    found = {group.name: group async for group in client.groups("mail", page_size=1)}
    assert found["team-1"].paused and found["team-2"].effective_limit == 0
    await client.resume("mail", "team-1")
    await client.remove_limit("mail", "team-2")
    found = {group.name: group async for group in client.groups("mail")}
    assert not found["team-1"].paused and found["team-2"].effective_limit == 2
    assert await client.drain("mail") == 3
    with pytest.raises(BadOption):
        await client.queue("nothing")


async def test_workers_and_kinds(here: Site, client: Client) -> None:
    assert await client.workers() == []
    async with here.yard.worker(concurrency=3) as worker:
        [seen] = await eventually(client.workers)
        assert (seen.id, seen.concurrency) == (worker.info().id, 3)
        await client.quiet(seen.id)
        await client.stop(seen.id)
    with pytest.raises(WorkerNotFound):
        await client.quiet("nobody")
    assert (await client.kinds()).any_kind


async def test_tokens_audit_me_and_health(here: Site, client: Client) -> None:
    made = await client.create_token("ci", "submitter", queues=["mail"], expire_seconds=60)
    assert made.token.startswith("jy_")
    assert made.id in {token.id for token in await client.tokens()}
    async with Client(here.url, made.token) as theirs:
        me = await theirs.me()
        assert (me.name, me.role, me.queues) == ("ci", "submitter", ("mail",))
    await client.revoke_token(made.id)
    with pytest.raises(NotFound):
        await client.revoke_token(made.id)
    assert [entry.action async for entry in client.audit(page_size=1)] == ["token.create", "token.revoke"]
    with pytest.raises(BadOption, match="Did you mean"):
        await client.create_token("x", "admim")
    assert (await client.health()).status == "ok"


async def test_invalid_input_is_rejected_before_it_is_sent() -> None:
    async with Client("http://127.0.0.1:9") as anonymous:
        with pytest.raises(BadOption, match="priority"):
            await anonymous.enqueue("send", prioritty=1)  # type: ignore[call-arg]
        with pytest.raises(PayloadNotJson):
            await anonymous.enqueue("send", {"x": float("nan")})
        with pytest.raises(BadInput):
            await anonymous.enqueue("send", [1])
        with pytest.raises(BadOption):
            await anonymous.enqueue("send", transaction=object())


@pytest.mark.parametrize("name", ["org/repo", "a b", "ä&?#%", "100%", "%2F", "a%2Fb", ";x=1", "+", "*", "'\"<>"])
async def test_names_with_any_characters(here: Site, client: Client, name: str) -> None:
    await client.enqueue("send", {"to": "ann"}, queue=name, group=name)
    assert (await client.queue(name)).name == name
    await client.set_limit(name, name, 3)
    await client.pause(name, name)
    [group] = [group async for group in client.groups(name)]
    assert (group.name, group.limit, group.paused) == (name, 3, True)
    assert [job.group async for job in client.jobs(JobFilter(queue=name, group=name))] == [name]
