"""The fake of GitHub Enterprise Server runs jobs on runners as the reference says."""

from __future__ import annotations

import asyncio
import base64
import functools
import json

import pytest
from tests.github.fake_world import LINUX, World, refusal, virtual

from jobyard.demo.fake_github import Faults, JobSpec, SessionRefused, Timings


@virtual
async def test_a_job_runs_on_a_runner_and_the_record_goes() -> None:
    world = World()
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    encoded = world.mint()
    [runner] = world.github.runners.of_scope(world.acme, None)
    assert (runner.status, runner.busy) == ("offline", False)
    session = world.github.connect(encoded)
    assert runner.status == "online"
    await session.started.wait()
    assert (job.status, runner.busy) == ("in_progress", True)
    assert refusal(lambda: world.github.runners.delete(runner)) == (
        422,
        'Bad request - Runner "runner-1" is still running a job',
    )
    assert await session.wait() == "completed"
    await world.github.drain()
    assert world.names() == []
    assert [(action, status) for _, action, status in world.receiver.actions()] == [
        ("queued", "queued"),
        ("in_progress", "in_progress"),
        ("completed", "completed"),
    ]
    queued, in_progress, completed = [event["workflow_job"] for event in world.receiver.events()]
    assert (queued["runner_id"], queued["started_at"]) == (None, queued["created_at"])
    assert (in_progress["runner_id"], in_progress["runner_name"]) == (1, "runner-1")
    assert (completed["runner_name"], completed["conclusion"]) == ("runner-1", "success")
    assert job.completed_at is not None and job.started_at is not None
    assert job.completed_at - job.started_at == 30.0


@virtual
async def test_names_labels_and_groups_are_checked() -> None:
    world = World()
    hidden = world.github.create_group(world.acme, "enterprise", inherited=True)
    world.mint("taken")
    assert refusal(lambda: world.mint("taken")) == (
        409,
        "Already exists - A runner with the name taken already exists.",
    )
    for name in ("a/b", "", "x" * 65, 'quote"'):
        status, message = refusal(functools.partial(world.mint, name))
        assert (status, message[:48]) == (400, "A valid runner name is 64 characters or less in ")
    world.mint("x" * 64)
    assert refusal(lambda: world.mint("none", []))[0] == 422
    assert refusal(lambda: world.mint("many", ["label"] * 101))[0] == 422
    assert refusal(lambda: world.mint("unknown", group=99999))[0] == 404
    assert refusal(lambda: world.mint("forbidden", group=hidden.id))[0] == 403
    own = functools.partial(world.github.generate_jitconfig, world.web, name="own", labels=["linux"])
    usable = world.github.create_group(world.acme, "usable")
    assert refusal(lambda: own(runner_group_id=usable.id))[0] == 404, "repositories have the default group only"
    other = world.github.create_organization("other")
    runner, _ = world.github.generate_jitconfig(other, name="taken", labels=["linux"])
    assert runner.id == 1, "ids and names are counted per organization"


@virtual
async def test_the_configuration_looks_like_the_real_one() -> None:
    world = World()
    files = json.loads(base64.b64decode(world.mint()))
    assert set(files) == {".runner", ".credentials", ".credentials_rsaparams"}
    settings = json.loads(base64.b64decode(files[".runner"]))
    assert (settings["AgentName"], settings["Ephemeral"]) == ("runner-1", "True")


@virtual
async def test_the_oldest_matching_job_is_assigned_whatever_the_runner_was_made_for() -> None:
    world = World()
    [gpu] = world.github.queue_run(world.web, [JobSpec(labels=["gpu"])]).jobs
    await asyncio.sleep(1)
    [unlabelled] = world.github.queue_run(world.web, [JobSpec(labels=[])]).jobs
    [first] = world.github.queue_run(world.web, [JobSpec(labels=["Self-Hosted"])]).jobs
    await asyncio.sleep(1)
    [second] = world.github.queue_run(world.web, [LINUX]).jobs
    session = world.github.connect(world.mint(labels=["SELF-HOSTED", "linux", "extra"]))
    await session.wait()
    assert session.job is first
    assert [job.status for job in (gpu, unlabelled, second)] == ["queued"] * 3


@virtual
async def test_group_visibility_and_scope_decide() -> None:
    world = World()
    api = world.github.create_repository(world.acme, "api")
    site = world.github.create_repository(world.acme, "site", private=False)
    group = world.github.create_group(world.acme, "few", visibility="selected", repositories=[api, site])
    jobs = [world.github.queue_run(each, [LINUX]).jobs[0] for each in (world.web, site, api)]
    session = world.github.connect(world.mint(group=group.id))
    await session.wait()
    assert session.job is jobs[2], "web is not selected, site is public"
    _, encoded = world.github.generate_jitconfig(site, name="own", labels=["self-hosted", "linux"])
    own = world.github.connect(encoded)
    await own.wait()
    assert own.job is jobs[1]
    assert jobs[0].status == "queued"


@virtual
async def test_waiting_runners_take_jobs_in_the_order_of_connecting() -> None:
    world = World()
    sessions = [world.github.connect(world.mint(f"runner-{number}")) for number in range(3)]
    run = world.github.queue_run(world.web, [LINUX] * 2)
    await asyncio.sleep(1)
    assert [session.job for session in sessions] == [*run.jobs, None]


@virtual
async def test_a_configuration_serves_one_session() -> None:
    world = World()
    encoded = world.mint()
    session = world.github.connect(encoded)
    with pytest.raises(SessionRefused, match="already exists"):
        world.github.connect(encoded)
    session.close()
    with pytest.raises(SessionRefused, match="already exists"):
        world.github.connect(encoded)
    with pytest.raises(SessionRefused, match="not valid"):
        world.github.connect("bm90IGpzb24=")


@virtual
async def test_unused_configurations_expire_and_idle_runners_are_removed() -> None:
    world = World(timings=Timings(jit_config_lifetime=600.0, idle_removal=120.0))
    expired = world.mint("expired")
    idle = world.github.connect(world.mint("idle"))
    assert await idle.wait() == "removed"
    assert world.names() == ["expired"]
    await asyncio.sleep(600)
    assert world.names() == []
    with pytest.raises(SessionRefused, match="deleted"):
        world.github.connect(expired)


@virtual
async def test_a_job_that_is_not_taken_is_queued_again() -> None:
    world = World()
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    deaf = world.github.connect(world.mint("deaf"), takes_jobs=False)
    await asyncio.sleep(59)
    assert (deaf.runner.busy, job.status) == (True, "queued")
    await asyncio.sleep(2)
    assert (deaf.runner.busy, deaf.runner.status) == (False, "offline")
    healthy = world.github.connect(world.mint("healthy"))
    await healthy.wait()
    assert healthy.job is job


@virtual
async def test_a_runner_that_stops_in_order_hands_its_job_back() -> None:
    world = World(timings=Timings(start_delay=5.0))
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    first = world.github.connect(world.mint("first"))
    await first.assigned.wait()
    first.close()
    assert (job.runner, first.runner.busy, first.runner.status) == (None, False, "offline")
    second = world.github.connect(world.mint("second"))
    await second.started.wait()
    second.close()
    assert (job.runner, job.conclusion) == (second.runner, "failure")
    assert world.names() == ["first"]


@virtual
async def test_a_killed_runner_keeps_its_job_for_a_while() -> None:
    world = World(faults=Faults(long_busy=1.0))
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    session = world.github.connect(world.mint())
    await session.started.wait()
    session.kill()
    await asyncio.sleep(599)
    assert (session.runner.status, session.runner.busy, job.status) == ("offline", True, "in_progress")
    assert refusal(lambda: world.github.runners.delete(session.runner))[0] == 422
    await asyncio.sleep(2)
    assert (job.status, job.conclusion, world.names()) == ("completed", "failure", [])


@virtual
async def test_a_runner_killed_while_idle_may_swallow_a_job_for_a_minute() -> None:
    world = World()
    session = world.github.connect(world.mint())
    await asyncio.sleep(1)
    session.kill()
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    await asyncio.sleep(59)
    assert (job.status, job.runner) == ("queued", session.runner)
    await asyncio.sleep(2)
    assert job.runner is None
    world.github.runners.delete(session.runner)
    assert world.names() == []


@virtual
async def test_a_removed_runner_may_be_unaware_of_it() -> None:
    world = World(faults=Faults(zombie=1.0))
    session = world.github.connect(world.mint())
    world.github.runners.delete(session.runner)
    world.github.queue_run(world.web, [LINUX])
    await asyncio.sleep(3600)
    assert (session.state, session.job, world.names()) == ("idle", None, [])


@virtual
async def test_an_environment_gate_sends_queued_waiting_queued() -> None:
    world = World()
    run = world.github.queue_run(world.web, [JobSpec(labels=["linux"], environment="production", name="deploy")])
    [job] = run.jobs
    assert world.github.jobs.status(run) == ("waiting", None)
    session = world.github.connect(world.mint())
    await asyncio.sleep(100)
    assert session.job is None
    world.github.approve(job)
    await session.wait()
    await world.github.drain()
    assert [(action, status) for _, action, status in world.receiver.actions()][:3] == [
        ("queued", "waiting"),
        ("waiting", "waiting"),
        ("queued", "queued"),
    ]
    updated = [event["deployment"]["updated_at"] for event in world.receiver.events()[:3]]
    assert updated[0] == updated[1] < updated[2]


@virtual
async def test_max_parallel_queues_too_early() -> None:
    world = World()
    run = world.github.queue_run(world.web, [LINUX] * 3, max_parallel=1)
    await world.github.drain()
    assert [status for _, _, status in world.receiver.actions()] == ["queued"] * 3
    assert [job.status for job in run.jobs] == ["queued", "pending", "pending"]
    sessions = [world.github.connect(world.mint(f"runner-{number}")) for number in range(2)]
    await asyncio.sleep(10)
    assert [session.job for session in sessions] == [run.jobs[0], None]
    await sessions[1].wait()
    assert sessions[1].job is run.jobs[1]
    await world.github.drain()
    assert len([action for _, action, _ in world.receiver.actions() if action == "queued"]) == 3


@virtual
async def test_a_concurrency_group_holds_the_next_run_and_cancels_the_one_between() -> None:
    world = World()
    first, second, third = [world.github.queue_run(world.web, [LINUX], concurrency="deploy") for _ in range(3)]
    assert [run.jobs[0].status for run in (first, second, third)] == ["queued", "completed", "pending"]
    assert second.jobs[0].conclusion == "cancelled"
    await world.github.connect(world.mint()).wait()
    assert third.jobs[0].status == "queued"


@virtual
async def test_needs_create_jobs_later_or_skip_them() -> None:
    world = World()
    build = JobSpec(labels=["linux"], conclusion="failure", name="build")
    run = world.github.queue_run(
        world.web, [build, JobSpec(labels=["linux"], needs=[0]), JobSpec(labels=[], needs=[1])]
    )
    assert len(run.jobs) == 1
    await world.github.connect(world.mint()).wait()
    assert [job.conclusion for job in run.jobs] == ["failure", "skipped", "skipped"]
    assert world.github.jobs.status(run) == ("completed", "failure")


@virtual
async def test_cancel_while_queued_assigned_and_running() -> None:
    world = World(faults=Faults(zero_runner=1.0), timings=Timings(start_delay=5.0))
    run = world.github.queue_run(world.web, [LINUX, JobSpec(labels=["gpu"]), JobSpec(labels=["gpu"], needs=[0])])
    session = world.github.connect(world.mint())
    await session.assigned.wait()
    world.github.cancel(run.jobs[0])
    await asyncio.sleep(10)
    assert (session.state, session.runner.busy) == ("idle", False), "the runner waits for another job"
    world.github.cancel(run)
    await world.github.drain()
    assert [job.conclusion for job in run.jobs] == ["cancelled", "cancelled", "skipped"]
    last = [event["workflow_job"] for event in world.receiver.events() if event["action"] == "completed"][-1]
    assert (last["runner_id"], last["runner_name"]) == (0, "")
    [other] = world.github.queue_run(world.web, [LINUX]).jobs
    await session.started.wait()
    world.github.cancel(other)
    assert await session.wait() == "completed"
    assert (other.conclusion, world.names()) == ("cancelled", [])


@virtual
async def test_a_rerun_makes_new_jobs_and_resends_completed() -> None:
    world = World()
    run = world.github.queue_run(world.web, [LINUX, JobSpec(labels=["linux"], conclusion="failure")])
    for name in ("one", "two"):
        await world.github.connect(world.mint(name)).wait()
    await world.github.drain()
    good, bad = run.jobs
    already = len(world.receiver.received)
    [again] = world.github.rerun(run, failed_only=True)
    await world.github.drain()
    assert again.id not in (good.id, bad.id)
    sent = [
        (json.loads(body)["workflow_job"]["id"], json.loads(body)["action"])
        for _, _, body in world.receiver.received[already:]
    ]
    assert sent == [(good.id, "completed"), (bad.id, "completed"), (again.id, "queued")]
    assert (run.attempt, again.attempt, good.attempt) == (2, 2, 1)
    assert world.github.jobs.status(run) == ("in_progress", None)
    assert run.latest() == [good, again]


@virtual
async def test_a_job_queued_for_a_day_fails() -> None:
    world = World()
    [job] = world.github.queue_run(world.web, [LINUX]).jobs
    await asyncio.sleep(86399)
    assert job.status == "queued"
    await asyncio.sleep(2)
    assert (job.status, job.conclusion) == ("completed", "failure")


@virtual
async def test_a_startup_failure_leaves_the_job_queued_for_ever() -> None:
    world = World()
    run = world.github.queue_run(world.web, [LINUX])
    world.github.jobs.fail_startup(run)
    session = world.github.connect(world.mint())
    assert await session.wait() == "removed"
    await asyncio.sleep(2 * 86400)
    await world.github.drain()
    assert run.jobs[0].status == "queued"
    assert world.github.jobs.status(run) == ("completed", "startup_failure")
    assert [action for _, action, _ in world.receiver.actions()] == ["queued"]


@virtual
async def test_foreign_and_null_events() -> None:
    world = World()
    number = world.github.jobs.create_check_run(world.web)
    world.github.jobs.send_null_job(world.web)
    await world.github.drain()
    foreign, null = world.receiver.events()
    assert (foreign["workflow_job"]["id"], foreign["action"]) == (number, "completed")
    assert (foreign["workflow_job"]["runner_id"], foreign["workflow_job"]["labels"]) == (None, [])
    assert null["workflow_job"] is None
