"""Why GitHub jobs wait, and how far the limits reach: the reference scenarios, and each reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.github.runner_site import LINUX, RunnerSite, runner_site
from tests.house.repository import DOCS

from jobyard.domain.instant import after
from jobyard.domain.runners.explain import Capacity, OrgCapacity, general_reason, reach, waiting_reasons
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, RunnerScope
from jobyard.domain.runners.plan import Ticket
from jobyard.domain.runners.reasons import CODES, Reason
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.errors import BadInput
from jobyard.github.queries import Viewer
from jobyard.github.tickets import QUEUE

REQUESTS = {"a": 35, "b": 50, "c": 72}


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site() as made:
        yield made


async def reason_of(site: RunnerSite, job: GitHubJob) -> str | None:
    found = await site.queries.job(job.job_id)
    assert found is not None
    assert found.reason is None or found.sentence == found.reason.sentence
    return None if found.reason is None else found.reason.code


def queued(number: int, org: str = "a", first: int = 0, profile: str | None = "linux") -> list[GitHubJob]:
    return [
        GitHubJob(job_id=first + each, run_id=1, org_name=org, profile=profile, queued_at=each, labels=("x",))
        for each in range(1, number + 1)
    ]


# The rules


def test_total_limit_is_named_when_the_organization_has_room() -> None:
    limits = Capacity(
        max_total=25,
        max_per_org=10,
        running=25,
        orgs={"a": OrgCapacity(limit=10, running=10), "c": OrgCapacity(limit=10, running=5)},
    )
    jobs = queued(2) + queued(2, "c", first=100)
    found = waiting_reasons(jobs, (), (), limits, {}, 0)
    assert {job_id: reason.code for job_id, reason in found.items()} == {
        1: "org_limit_reached", 2: "org_limit_reached", 101: "total_limit_reached", 102: "total_limit_reached",
    }  # fmt: skip
    assert found[1].sentence == "10 of 10 runners of a run."
    assert found[101].sentence == "25 of 25 runners run in all."


def test_oldest_jobs_get_the_runners_that_are_coming() -> None:
    runner = Runner(name="r", org_name="a", profile="linux", state=RunnerState.UNSCHEDULABLE, reason="no node has room")
    scope = RunnerScope("a")
    launching = Ticket(id="t", scope=scope, profile="linux", job_id=9, is_running=True)
    found = waiting_reasons(queued(4), (runner,), (launching,), Capacity(max_per_org=2), {}, 0)
    assert [found[number].code for number in (1, 2, 3, 4)] == ["starting", "starting", "next", "next"]
    assert "unschedulable (no node has room)" in found[1].sentence
    held = {(scope, "linux"): Reason("quota_exceeded", "no room")}
    found = waiting_reasons(queued(4), (runner,), (launching,), Capacity(max_per_org=2), held, 0)
    assert [found[number].code for number in (1, 2, 3, 4)] == [
        "starting",
        "starting",
        "quota_exceeded",
        "quota_exceeded",
    ]


def test_only_as_many_are_next_as_there_is_room_for() -> None:
    limits = Capacity(max_total=100, max_per_org=3, running=1, orgs={"a": OrgCapacity(limit=3, running=1)})
    other_profile = queued(1, first=50, profile="gpu")
    found = waiting_reasons([*queued(3), *other_profile], (), (), limits, {}, 0)
    assert [found[number].code for number in (1, 51, 2, 3)] == ["next", "next", "in_line", "in_line"]
    assert found[3].sentence == "3 jobs of a go first."


@pytest.mark.parametrize(
    ("capacity", "code"),
    [
        (Capacity(max_per_org=1, has_manager=False), "no_manager"),
        (Capacity(max_per_org=1, is_paused=True), "paused"),
        (Capacity(orgs={"a": OrgCapacity(limit=5, is_paused=True)}), "paused"),
        (Capacity(orgs={"a": OrgCapacity(limit=0, own_limit=0)}), "org_blocked"),
        (Capacity(), "next"),
    ],
)
def test_reasons_of_an_organization(capacity: Capacity, code: str) -> None:
    assert {reason.code for reason in waiting_reasons(queued(3), (), (), capacity, {}, 0).values()} == {code}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_sentence(code: str) -> None:
    sentence = general_reason(code).sentence
    assert sentence[0].isupper()
    assert sentence.endswith(".")


def test_every_code_is_in_the_guide() -> None:
    text = (DOCS / "howto" / "github-runners.md").read_text("utf-8")
    assert [code for code in CODES if f"| `{code}` |" not in text] == []


def test_reach_of_the_limits() -> None:
    limits = Capacity(max_total=100, max_per_org=10)
    assert reach(limits, "abc") == (30, "3 organizations \N{MULTIPLICATION SIGN} 10: at most 30 of 100 can run")
    assert reach(limits, [f"org-{number}" for number in range(20)]).runners == 100
    own = {"a": OrgCapacity(limit=25, own_limit=25), "b": OrgCapacity(limit=50, own_limit=50)}
    found = reach(msgspec.structs.replace(limits, orgs=own), "abc")
    assert found == (85, "a 25 + b 50 + 1 organization \N{MULTIPLICATION SIGN} 10: at most 85 of 100 can run")
    many = {f"org-{number}": OrgCapacity(limit=2, own_limit=2) for number in range(7)}
    assert reach(msgspec.structs.replace(limits, orgs=many), many).sentence.startswith("7 organizations with limits")
    assert reach(limits, ()).runners == 0
    assert reach(Capacity(max_per_org=10), "ab").sentence.endswith("at most 20 of unlimited can run")
    assert reach(Capacity(), "a").runners is None


# On a store


async def test_reference_scenario(site: RunnerSite) -> None:
    await site.start_manager()
    for org, number in REQUESTS.items():
        for _ in range(number):
            await site.receive(org)
    runners = await site.launch()
    assert Counter(runner.org_name for runner in runners) == {"a": 10, "b": 10, "c": 10}
    for busy in (False, True):
        if busy:
            await site.start_jobs(runners)
        listed = await site.queries.orgs()
        assert listed.totals is not None
        assert (listed.totals.running, listed.totals.waiting, listed.totals.reachable) == (30, 127, 30)
        assert listed.totals.sentence == "3 organizations \N{MULTIPLICATION SIGN} 10: at most 30 of 100 can run"
        assert [(org.running, org.waiting, org.starting, org.in_progress) for org in listed.items] == [
            (10, waits, 0 if busy else 10, 10 if busy else 0) for waits in (25, 40, 62)
        ]
        assert [org.reasons["org_limit_reached"] for org in listed.items] == [25, 40, 62]
    page = await site.queries.jobs(org="a", state="queued", limit=100)
    assert [item.reason and item.reason.code for item in page.items] == ["org_limit_reached"] * 25


async def test_when_a_runner_ends_the_next_job_of_its_organization_starts(site: RunnerSite) -> None:
    await site.start_manager()
    for org in ("a", "b"):
        for _ in range(12):
            await site.receive(org)
    runners = await site.launch()
    await site.start_jobs(runners)
    ended = next(runner for runner in runners if runner.org_name == "a")
    await site.receive("a", GitHubJobState.COMPLETED, job_id=ended.requested_job_id, runner_name=ended.name)
    await site.end(ended)
    waiting = (await site.queries.jobs(state="queued")).items
    assert Counter((each.org_name, each.reason.code) for each in waiting if each.reason) == {
        ("a", "next"): 1, ("a", "in_line"): 1, ("b", "org_limit_reached"): 2,
    }  # fmt: skip
    assert {runner.org_name for runner in await site.launch()} == {"a"}


async def test_own_limits() -> None:
    settings = ManagerSettings(org_limits={"a": 25, "b": 50})
    async with runner_site(settings) as site:
        assert (await site.queries.orgs()).items[0].limit == 25, "before a manager has declared them"
        await site.start_manager()
        for org, number in REQUESTS.items():
            for _ in range(number):
                await site.receive(org)
        assert len(await site.launch()) == 85
        listed = await site.queries.orgs()
        assert listed.totals is not None
        assert (listed.totals.running, listed.totals.reachable) == (85, 85)
        assert [(org.limit, org.own_limit) for org in listed.items] == [(25, 25), (50, 50), (10, None)]


async def test_reasons_of_single_jobs(site: RunnerSite) -> None:
    job = await site.receive("acme")
    assert await reason_of(site, job) == "no_manager"
    await site.start_manager()
    assert await reason_of(site, job) == "next"
    held_back = await site.receive("acme", GitHubJobState.HELD_BACK)
    assert await reason_of(site, held_back) == "held_back"
    assert [each.job_id for each in (await site.queries.jobs(state="held_back")).items] == [held_back.job_id]
    unserved = await site.receive("acme", labels=("gpu",))
    assert await reason_of(site, unserved) == "no_profile"
    assert [each.job_id for each in (await site.queries.jobs(state="unserved")).items] == [unserved.job_id]
    blocked = await site.receive("acme")
    until = after(await site.now(), 60)
    await site.ingest.jobs.change(
        blocked.job_id,
        lambda known: msgspec.structs.replace(known, blocked="rejected: GitHub said no.", blocked_until=until),
    )
    assert await reason_of(site, blocked) == "rejected"
    await site.store.set_limit(QUEUE, "acme", 0)
    assert await reason_of(site, job) == "org_blocked"
    await site.store.set_limit(QUEUE, "acme", None)
    await site.store.set_paused(QUEUE, None, True)
    assert await reason_of(site, job) == "paused"
    [org] = (await site.queries.orgs()).items
    assert (org.waiting, org.held_back, org.blocked) == (2, 1, 1)


async def test_gate_holds_back_the_demand(site: RunnerSite) -> None:
    await site.start_manager()
    job = await site.receive("acme")
    quota = Reason("quota_exceeded", "pods: 5 of 5.")
    await site.ingest.runners.close_gate(job.scope, "linux", quota, await site.now(), 30)
    assert await reason_of(site, job) == "quota_exceeded"
    await site.ingest.runners.close_gate(job.scope, "linux", quota, await site.now(), 0)
    assert await reason_of(site, job) == "next"
    # A failed launch is repeated after 30 seconds; its gate is open already.
    away = Reason("github_unavailable", "502.")
    await site.ingest.runners.close_gate(job.scope, "linux", away, await site.now(), 0)
    assert await reason_of(site, job) == "github_unavailable"


async def test_timeline_of_a_job(site: RunnerSite) -> None:
    await site.start_manager()
    job = await site.receive("acme")
    [runner] = await site.launch()
    found = await site.queries.job(job.job_id)
    assert found is not None
    assert found.reason is not None
    assert (found.reason.code, found.runner and found.runner.name) == ("starting", runner.name)
    assert [leg.what for leg in found.timeline] == ["received", "planned", "minted", "created"]
    await site.start_jobs([runner])
    found = await site.queries.job(job.job_id)
    assert found is not None
    assert (found.state, found.reason, found.runner_name) == ("in_progress", None, runner.name)
    assert [leg.what for leg in found.timeline][-1] == "in_progress"
    await site.receive(
        "acme", GitHubJobState.COMPLETED, job_id=job.job_id, runner_name=runner.name, conclusion="success"
    )
    await site.end(runner)
    found = await site.queries.job(job.job_id)
    assert found is not None
    assert [leg.what for leg in found.timeline] == [
        "received", "planned", "minted", "created", "online", "in_progress", "ended",
    ]  # fmt: skip
    assert (found.timeline[-1].detail, found.runner) == ("success", None)
    assert found.sentence == "It does not wait: it has ended (success)."
    [org] = (await site.queries.orgs()).items
    assert org.jobs_this_month == 1
    assert await site.queries.job(999) is None


async def test_timeline_of_a_job_whose_start_was_not_told(site: RunnerSite) -> None:
    await site.start_manager()
    job = await site.receive("acme")
    [runner] = await site.launch()
    await site.receive(
        "acme", GitHubJobState.COMPLETED, job_id=job.job_id, runner_name=runner.name, conclusion="success"
    )
    await site.end(runner)
    found = await site.queries.job(job.job_id)
    assert found is not None
    assert [leg.what for leg in found.timeline] == ["received", "planned", "minted", "created", "online", "ended"]


async def test_event_that_came_after_the_start_is_said_to_be_late(site: RunnerSite) -> None:
    now = await site.now()
    running = {"queued_at": now - 60_000, "runner_name": "r-1", "runner_id": 7}
    late = await site.receive("acme", GitHubJobState.IN_PROGRESS, started_at=now - 30_000, **running)
    found = await site.queries.job(late.job_id)
    assert found is not None
    assert [leg.what for leg in found.timeline] == ["in_progress", "received"]
    assert found.timeline[1].detail == "after a runner had the job: its events came late"
    # GitHub tells whole seconds.
    soon = await site.receive("acme", GitHubJobState.IN_PROGRESS, started_at=await site.now() - 500, **running)
    found = await site.queries.job(soon.job_id)
    assert found is not None
    assert [(leg.what, leg.detail) for leg in found.timeline] == [("received", ""), ("in_progress", "r-1")]


async def test_pages(site: RunnerSite) -> None:
    await site.start_manager()
    jobs = [await site.receive("acme") for _ in range(5)]
    runners = await site.launch()
    for verb, expected in (
        (site.queries.jobs, [job.job_id for job in jobs]),
        (site.queries.pods, sorted(runner.name for runner in runners)),
    ):
        seen: list[object] = []
        cursor: str | None = None
        while True:
            page = await verb(limit=2, cursor=cursor)
            assert len(page.items) <= 2
            seen += [getattr(item, "job_id" if verb == site.queries.jobs else "name") for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == expected
    with pytest.raises(BadInput):
        await site.queries.jobs(cursor="nonsense")
    assert (await site.queries.jobs(profile="gpu")).items == ()
    assert len((await site.queries.pods(state=RunnerState.STARTING)).items) == 5
    assert (await site.queries.pods(state=RunnerState.BUSY)).items == ()


async def test_restricted_viewer_sees_no_totals() -> None:
    async with runner_site(ManagerSettings(max_total=3)) as site:
        await site.start_manager()
        for org in ("acme", "beta"):
            for _ in range(3):
                await site.receive(org)
        await site.launch()
        viewer = Viewer(frozenset({"acme"}))
        listed = await site.queries.orgs(viewer)
        assert ([org.name for org in listed.items], listed.totals) == (["acme"], None)
        waiting = (await site.queries.jobs(viewer=viewer, state="queued")).items
        assert {job.org_name for job in waiting} == {"acme"}
        limited = [job.reason for job in waiting if job.reason and job.reason.code == "total_limit_reached"]
        assert limited
        assert {reason.sentence for reason in limited} == {"As many runners run as may in all."}
        other = (await site.queries.jobs(org="beta")).items[0]
        assert await site.queries.job(other.job_id, viewer) is None
        assert {pod.org_name for pod in (await site.queries.pods(viewer=viewer)).items} == {"acme"}


async def test_one_reading_serves_several_questions(site: RunnerSite) -> None:
    queries = type(site.queries)(site.store, site.settings, cache_seconds=3600)
    assert (await queries.jobs()).items == ()
    await site.receive("acme")
    assert (await queries.jobs()).items == ()
    queries.refresh()
    assert len((await queries.jobs()).items) == 1


def test_ten_thousand_jobs_are_explained_in_a_moment() -> None:
    jobs = [job for org in range(20) for job in queued(500, f"org-{org}", first=org * 1000)]
    runners = [
        Runner(name=f"r-{org}-{number}", org_name=f"org-{org}", profile=LINUX.name, state=RunnerState.STARTING)
        for org in range(20)
        for number in range(10)
    ]
    limits = Capacity(max_total=1000, max_per_org=10, running=200, orgs={})
    started = time.process_time()
    found = waiting_reasons(jobs, runners, (), limits, {}, 0)
    assert len(found) == 10_000
    # About 0.05 s; a search per job, instead of per demand, takes a minute.
    assert time.process_time() - started < 2.0
