"""The same operations on a store and through a server, with the same results."""

from __future__ import annotations

import pytest
from tests.client.support import Site

from jobyard.client import Client
from jobyard.client.operations import RemoteOperations
from jobyard.domain.job import State
from jobyard.errors import (
    BadOption,
    JobFailed,
    JobNotFound,
    NotFound,
    NotPossible,
    ResultNotReady,
    WorkerNotFound,
)
from jobyard.operations.local import LocalOperations
from jobyard.operations.protocol import Operations
from jobyard.operations.queries import take
from jobyard.ports.admin_store import Action, Filter


@pytest.fixture(params=["local", "remote"])
def operations(request: pytest.FixtureRequest, here: Site, client: Client) -> Operations:
    return LocalOperations(here.yard.store) if request.param == "local" else RemoteOperations(client)


async def test_submit_wait_and_change(here: Site, operations: Operations) -> None:
    done = await operations.submit("send", {"to": "ann"}, {"queue": "mail", "unique": "key"})
    again = await operations.submit("send", {"to": "bob"}, {"queue": "mail", "unique": "key"})
    assert (done.created, again) == (True, (done.id, False))
    with pytest.raises(ResultNotReady, match=f"It is PENDING. Run `jobyard explain {done.id}`"):
        await operations.end(done.id, 0)
    assert (await operations.explain(done.id)).state is State.PENDING
    failing = await operations.submit("fail", {}, {"queue": "mail", "max_attempts": 1})
    async with here.yard.worker():
        assert await operations.result(done.id, 60) == b'{"to":"ann","copies":1}'
        with pytest.raises(JobFailed):
            await operations.result(failing.id, 60)
    assert [job.id async for job in operations.walk(Filter())] == [failing.id, done.id]
    assert await operations.count(Filter(states=(State.FAILED,))) == 1
    with pytest.raises(NotPossible):
        await operations.change_one(Action.RETRY, done.id)
    with pytest.raises(JobNotFound):
        await operations.change_one(Action.RETRY, "nothing")
    batches = [each async for each in operations.change_matching(Action.RETRY, Filter(states=(State.FAILED,)))]
    assert [each.changed for each in batches] == [(failing.id,)]
    assert await operations.signal(failing.id, "go") is False
    assert await operations.drain("mail") == 1


async def test_queues_groups_and_workers(operations: Operations) -> None:
    for group in ("a", "b", "c", None):
        await operations.submit("send", {"to": "ann"}, {"queue": "mail", "group": group})
    await operations.set_limit("mail", "b", 3)
    await operations.pause("mail", "c")
    groups = [each async for each in operations.groups("mail", page_size=2)]
    assert [(each.name, each.limit, each.paused) for each in groups] == [
        (None, None, False), ("a", None, False), ("b", 3, False), ("c", None, True),
    ]  # fmt: skip
    assert [each.name for each in await take(operations.groups("mail", after="a"), 1)] == ["b"]
    assert (await operations.queue("mail")).waiting == 4
    with pytest.raises(BadOption, match='Did you mean "mail"'):
        await operations.queue("mial")
    with pytest.raises(WorkerNotFound):
        await operations.control_worker("nothing", "stop")
    with pytest.raises(BadOption):
        await operations.control_worker("nothing", "explode")


async def test_schedules_tokens_and_their_audit_log(operations: Operations) -> None:
    await operations.add_schedule({"name": "nightly", "expression": "@daily", "kind": "send", "payload": {"to": "ann"}})
    assert (await operations.edit_schedule("nightly", {"priority": 3})).priority == 3
    assert (await operations.pause_schedule("nightly")).enabled is False
    assert (await operations.resume_schedule("nightly")).enabled is True
    assert len((await operations.next_of_schedule("nightly", 2)).items) == 2
    job_id = await operations.run_schedule("nightly")
    assert (await operations.job(job_id)).kind == "send"
    assert [each async for each in operations.schedule_history("nightly")] == []
    await operations.remove_schedule("nightly")
    with pytest.raises(NotFound):
        await operations.schedule("nightly")
    info, _ = await operations.create_token("ci", "viewer", queues=["mail"])
    assert info in await operations.tokens()
    assert [await operations.revoke_token(info.id) for _ in range(2)] == [True, False]
    actions = [each.action async for each in operations.audit_log()]
    assert actions[-8:] == [
        *(f"schedule.{action}" for action in ("add", "edit", "pause", "resume", "run", "remove")),
        "token.create",
        "token.revoke",
    ]


async def test_every_change_is_in_the_audit_log(operations: Operations) -> None:
    job = await operations.submit("send", {"to": "ann"}, {"queue": "mail", "delay": 60})
    await operations.configure("mail", {"max_running": 3})
    changed = await operations.queue("mail")
    assert (changed.settings.max_running, changed.settings_origin, changed.declared_settings) == (3, "operator", None)
    await operations.reset_settings("mail")
    assert (await operations.queue("mail")).settings_origin == "default"
    await operations.set_limit("mail", "a", 2)
    await operations.remove_limit("mail", "a")
    await operations.pause("mail", "a")
    await operations.pause("mail")
    await operations.pause("mail", paused=False)
    await operations.signal(job.id, "go")
    await operations.change(Action.CANCEL, [job.id], reason="enough")
    assert await operations.drain("mail") == 0
    with pytest.raises(NotPossible):
        await operations.remove_queue("mail")
    await operations.change_one(Action.DELETE, job.id)
    await operations.remove_queue("mail")
    with pytest.raises(BadOption):
        await operations.remove_queue("mail")
    entries = [each async for each in operations.audit_log()]
    assert [(each.action, each.target) for each in (*entries[:-2], entries[-1])] == [
        ("queue.configure", "mail"),
        ("queue.reset", "mail"),
        ("group.limit", "mail/a"),
        ("group.unlimit", "mail/a"),
        ("group.pause", "mail/a"),
        ("queue.pause", "mail"),
        ("queue.resume", "mail"),
        ("job.signal", job.id),
        ("job.cancel", job.id),
        ("queue.drain", "mail"),
        ("queue.remove", "mail"),
    ]
    assert entries[0].details["max_running"] == 3
    assert entries[-4].details == {"reason": "enough"}
