"""The plan of tickets: demand minus supply, per scope and profile, whatever the situation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.lease import LeaseKey
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, RunnerScope
from jobyard.domain.runners.plan import IN_FLIGHT_MS, Demand, RunnerPlan, Ticket, plan
from jobyard.domain.runners.runner import Runner, RunnerState

NOW = 1_000_000
SCOPES = (RunnerScope("acme"), RunnerScope("beta"), RunnerScope("kim", "shop"))
PROFILES = ("linux", "gpu")
LAUNCHED = tuple(state for state in RunnerState if Runner(name="r", state=state).is_confirmed)


@dataclass
class Situation:
    jobs: list[GitHubJob] = field(default_factory=list)
    runners: list[Runner] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)

    def plan(self, now: int = NOW) -> RunnerPlan:
        return plan(self.jobs, self.runners, self.tickets, now)

    def apply(self, planned: RunnerPlan, now: int = NOW) -> Situation:
        """As the manager does: count the ticket with its job, then insert it."""
        added = {job.job_id for job in planned.add}
        jobs = [
            msgspec.structs.replace(job, tickets=job.tickets + 1, ticketed_at=now) if job.job_id in added else job
            for job in self.jobs
        ]
        kept = [ticket for ticket in self.tickets if ticket.id not in planned.withdraw]
        new = [make_ticket(f"new {job.job_id}", demand_of(job), job.job_id, 10_000 + job.job_id) for job in planned.add]
        return Situation(jobs, self.runners, kept + new)

    def waiting(self) -> Counter[Demand]:
        return Counter((ticket.scope, ticket.profile) for ticket in self.tickets if not ticket.is_running)


def demand_of(job: GitHubJob) -> Demand:
    assert job.profile is not None
    return job.scope, job.profile


def make_job(number: int, demand: Demand, **fields: object) -> GitHubJob:
    scope, profile = demand
    repository = f"{scope.owner}/{scope.repository or 'web'}"
    values = {"org_name": scope.owner, "owner_is_user": scope.repository is not None, "repo_full_name": repository}
    made: dict[str, object] = {"profile": profile, "queued_at": number, **values, **fields}
    return GitHubJob(job_id=number, run_id=number, **made)  # type: ignore[arg-type]


def make_ticket(name: str, demand: Demand, job_id: int, sequence: int, *, is_running: bool = False) -> Ticket:
    scope, profile = demand
    return Ticket(id=name, scope=scope, profile=profile, job_id=job_id, sequence=sequence, is_running=is_running)


def make_runner(name: str, demand: Demand, state: RunnerState, ticket: str | None = None) -> Runner:
    scope, profile = demand
    key = None if ticket is None else LeaseKey(ticket, 1, "t")
    return Runner(
        name=name, org_name=scope.owner, repository=scope.repository, profile=profile, state=state, ticket=key
    )


demands = st.tuples(st.sampled_from(SCOPES), st.sampled_from(PROFILES))
job_states = st.sampled_from([*[GitHubJobState.QUEUED] * 4, GitHubJobState.HELD_BACK, GitHubJobState.IN_PROGRESS])


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Jobs, runners and tickets in any combination; tickets are older than what may be in flight."""
    found = Situation()
    for number, (demand, state) in enumerate(draw(st.lists(st.tuples(demands, job_states), max_size=12)), 1):
        blocked = draw(st.sampled_from(["", "", "", "group_not_visible: x"]))
        tickets = draw(st.integers(0, 2))
        until = draw(st.sampled_from([NOW - 1, NOW + 1])) if blocked else 0
        job = make_job(number, demand, state=state, blocked=blocked, blocked_until=until, tickets=tickets)
        found.jobs.append(job)
    numbers = st.integers(1, 16)
    for number, (demand, job_id) in enumerate(draw(st.lists(st.tuples(demands, numbers), max_size=12))):
        is_running = draw(st.booleans())
        found.tickets.append(make_ticket(f"t{number}", demand, job_id, number, is_running=is_running))
        if is_running and draw(st.booleans()):
            reached = draw(st.sampled_from(list(RunnerState)))
            found.runners.append(make_runner(f"r{number}", demand, reached, f"t{number}"))
    adopted = st.lists(st.tuples(demands, st.sampled_from(LAUNCHED)), max_size=4)
    for number, (demand, seen) in enumerate(draw(adopted)):
        found.runners.append(make_runner(f"adopted{number}", demand, seen))
    return found


def queued(situation: Situation, now: int = NOW) -> Counter[Demand]:
    return Counter(
        demand_of(job)
        for job in situation.jobs
        if job.state is GitHubJobState.QUEUED and not (job.blocked and now < job.blocked_until)
    )


def spare(situation: Situation) -> Counter[Demand]:
    """Runners without a job, and claimed tickets whose runner does not exist yet."""
    found = Counter((each.scope, each.profile) for each in situation.runners if each.state.is_spare)
    have = {each.ticket.job_id for each in situation.runners if each.ticket is not None}
    found.update((each.scope, each.profile) for each in situation.tickets if each.is_running and each.id not in have)
    return found


@given(situations())
def test_waiting_tickets_are_the_demand_beyond_the_supply(situation: Situation) -> None:
    after = situation.apply(situation.plan())
    wanted, supply = queued(situation), spare(situation)
    for scope in SCOPES:
        for profile in PROFILES:
            demand = (scope, profile)
            assert after.waiting()[demand] == max(0, wanted[demand] - supply[demand])


@given(situations(), st.integers(0, 2 * IN_FLIGHT_MS))
def test_next_plan_is_empty(situation: Situation, later: int) -> None:
    blocked = [job for job in situation.jobs if job.blocked]
    for job in blocked:  # a block that ends in between is a change
        situation.jobs.remove(job)
    after = situation.apply(situation.plan())
    assert after.plan(NOW + later) == RunnerPlan((), ())


@given(situations())
def test_never_adds_and_withdraws_for_the_same_demand(situation: Situation) -> None:
    planned = situation.plan()
    by_id = {ticket.id: ticket for ticket in situation.tickets}
    withdrawn = {(by_id[name].scope, by_id[name].profile) for name in planned.withdraw}
    assert not withdrawn & {demand_of(job) for job in planned.add}
    assert not any(by_id[name].is_running for name in planned.withdraw)


@given(situations())
def test_adds_once_per_job_and_in_order(situation: Situation) -> None:
    planned = situation.plan()
    ids = [job.job_id for job in planned.add]
    assert len(set(ids)) == len(ids)
    assert [job.order for job in planned.add] == sorted(job.order for job in planned.add)
    assert all(job.state is GitHubJobState.QUEUED for job in planned.add)


@given(situations(), st.randoms())
def test_order_of_the_facts_does_not_matter(situation: Situation, rng: random.Random) -> None:
    planned = situation.plan()
    for facts in (situation.jobs, situation.runners, situation.tickets):
        rng.shuffle(facts)
    assert situation.plan() == planned


LINUX: Demand = (SCOPES[0], "linux")


def test_ticket_in_flight_is_not_added_twice() -> None:
    """It was counted with its job and may not be listed yet."""
    job = make_job(1, LINUX, tickets=1, ticketed_at=NOW)
    assert Situation([job]).plan(NOW + IN_FLIGHT_MS - 1) == RunnerPlan((), (), NOW + IN_FLIGHT_MS)
    assert [each.job_id for each in Situation([job]).plan(NOW + IN_FLIGHT_MS).add] == [1]


def test_is_made_again_only_for_a_job_without_a_ticket() -> None:
    """It may be the ticket of another job that is listed: they are counted."""
    jobs = [make_job(number, LINUX, tickets=1, ticketed_at=NOW + number) for number in (1, 2)]
    one, both = [make_ticket("t1", LINUX, 1, 1)], [make_ticket("t1", LINUX, 1, 1), make_ticket("t9", LINUX, 9, 2)]
    assert Situation(jobs, [], one).plan(NOW + 10).again_at == NOW + 1 + IN_FLIGHT_MS
    assert Situation(jobs, [], both).plan(NOW + 10).again_at == 0
    assert Situation(jobs, [make_runner("r", LINUX, RunnerState.IDLE)], one).plan(NOW + 10).again_at == 0


def test_withdraws_the_ticket_of_a_job_that_left_first() -> None:
    jobs = [make_job(1, LINUX), make_job(3, LINUX)]
    tickets = [make_ticket(f"t{number}", LINUX, number, number) for number in (1, 2, 3)]
    assert Situation(jobs, [], tickets).plan() == RunnerPlan((), ("t2",))
    assert Situation([jobs[1]], [], tickets[::2]).plan() == RunnerPlan((), ("t1",))


def test_oldest_jobs_get_the_tickets() -> None:
    jobs = [make_job(number, LINUX) for number in (4, 2, 3, 1)]
    runners = [make_runner("r", LINUX, RunnerState.IDLE)]
    assert [job.job_id for job in Situation(jobs, runners).plan().add] == [1, 2, 3]


def test_facts_that_were_read_later_count() -> None:
    """A runner that a job names is busy, and a job that a runner names is taken."""
    taken = make_job(1, LINUX)
    busy = msgspec.structs.replace(make_runner("r1", LINUX, RunnerState.BUSY), job_id=1)
    assert Situation([taken], [busy]).plan() == RunnerPlan((), ())
    running = make_job(2, LINUX, state=GitHubJobState.IN_PROGRESS, runner_name="r2")
    idle = make_runner("r2", LINUX, RunnerState.IDLE)
    waiting = make_job(3, LINUX)
    assert [job.job_id for job in Situation([running, waiting], [idle]).plan().add] == [3]
