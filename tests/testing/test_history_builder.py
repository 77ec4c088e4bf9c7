"""Hand-made histories: the words in which the other tests tell a story, and the smallest one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.job import AttemptError, Ending, Job, QueueSettings, State
from jobyard.domain.lease import ExpiredLease, LeaseKey
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.domain.schedule import Verdict
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.ports.schedule_store import Decided, Decision
from jobyard.testing.history import History, check
from jobyard.testing.history.events import (
    AdoptReturned,
    ChangeReturned,
    DecideReturned,
    DisarmReturned,
    ExchangeReturned,
    InsertReturned,
    LeasesReturned,
    NothingReturned,
    ReclaimReturned,
    RecordedAdopt,
    RecordedChange,
    RecordedCheckpoint,
    RecordedConfigure,
    RecordedDecide,
    RecordedDelivery,
    RecordedDisarm,
    RecordedExchange,
    RecordedInsert,
    RecordedJob,
    RecordedLease,
    RecordedLimit,
    RecordedPause,
    RecordedReclaim,
    RecordedReport,
    RecordedSettlement,
    RecordedTick,
    Request,
    Response,
)
from jobyard.testing.history.reader import RecordedOperation

LEASE_SECONDS = 15.0


class Story:
    """Each verb takes place after the one before, unless the clock is turned back by `tick`."""

    def __init__(self) -> None:
        self.history = History(processes=1)
        self.tick = 0
        self.revision = 0
        self.now = 1_000_000
        self.jobs: dict[str, tuple[RecordedJob, int]] = {}
        self.tokens: dict[str, str] = {}
        self.deaths: dict[str, int] = {}
        self.attempts: dict[str, int] = {}

    def add(self, request: Request, response: Response | None) -> None:
        self.tick += 10
        self.now += 1
        if response is None:
            self.history.operations.append(RecordedOperation(request, self.tick))
        else:
            self.history.operations.append(RecordedOperation(request, self.tick, response, self.tick + 5))

    def insert(
        self,
        *ids: str,
        group: str | None = "acme",
        priority: int = 0,
        queue: str = "q",
        delay_seconds: float = 0.0,
        run_at: int | None = None,
        answered: bool = True,
    ) -> None:
        rows = []
        for job_id in ids:
            handed = RecordedJob(
                id=job_id, queue=queue, group=group, priority=priority, delay_seconds=delay_seconds, run_at=run_at
            )
            self.jobs[job_id] = (handed, len(self.jobs) + 1)
            rows.append(Inserted(job_id, True, len(self.jobs)))
        request = RecordedInsert(tuple(self.jobs[job_id][0] for job_id in ids))
        self.add(request, InsertReturned(tuple(rows)) if answered else None)

    def decide(self, *instants: int, decision: Decision = Decision.MADE, job_id: str | None = None) -> None:
        """Ticks of one schedule; with an id the last one brings that job."""
        job = None if job_id is None else RecordedJob(id=job_id, queue="q", group="acme")
        ticks = [RecordedTick("nightly", at, job if at == instants[-1] else None) for at in instants]
        responses = [Decided(decision)] * len(ticks)
        if job is not None:
            self.jobs[job.id] = (job, len(self.jobs) + 1)
        if decision is Decision.MADE:
            responses = [Decided(decision, Verdict.MISSED)] * len(ticks)
            if job is not None:
                responses[-1] = Decided(decision, Verdict.FIRED, job.id)
        self.add(RecordedDecide(tuple(ticks)), DecideReturned(tuple(responses)))

    def disarm(self, *, was_armed: bool = True) -> None:
        self.add(RecordedDisarm("nightly"), DisarmReturned(was_armed))

    def lease(self, job_id: str) -> RecordedLease:
        handed, sequence = self.jobs[job_id]
        token = f"{job_id}-{self.revision}"
        self.tokens[job_id] = token
        return RecordedLease(
            job_id=job_id,
            token=token,
            queue=handed.queue,
            group=handed.group,
            priority=handed.priority,
            sequence=sequence,
            attempt=self.attempts.setdefault(job_id, 1),
            deaths=self.deaths.get(job_id, 0),
        )

    def exchange(
        self,
        *claimed: str,
        settled: Sequence[RecordedSettlement] = (),
        refused: Sequence[RecordedSettlement] = (),
        answered: bool = True,
    ) -> None:
        self.revision += 1
        request = RecordedExchange(
            worker="w",
            settlements=(*settled, *refused),
            queues=("q",),
            wanted=max(1, len(claimed)),
            lease_seconds=LEASE_SECONDS,
        )
        response = ExchangeReturned(
            revision=self.revision,
            now=self.now,
            refused=tuple(LeaseKey(sent.job_id, 0, sent.token) for sent in refused),
            leases=tuple(self.lease(job_id) for job_id in claimed),
        )
        self.add(request, response if answered else None)

    claim = exchange

    def sent(
        self,
        job_id: str,
        to: State = State.COMPLETED,
        *,
        token: str | None = None,
        counted: bool = True,
        delay_seconds: float = 0.0,
        signal: str | None = None,
    ) -> RecordedSettlement:
        if to is State.PENDING and counted:
            self.attempts[job_id] += 1
        return RecordedSettlement(
            job_id=job_id,
            token=token or self.tokens[job_id],
            to=to,
            counted=counted,
            delay_seconds=delay_seconds,
            signal=signal,
        )

    def park(self, job_id: str) -> None:
        self.exchange(settled=[self.sent(job_id, State.PENDING, counted=False, signal="its child jobs")])

    def checkpoint(self, job_id: str, token: str | None = None) -> None:
        self.deaths[job_id] = 0
        key = LeaseKey(job_id, 0, token or self.tokens[job_id])
        self.add(RecordedCheckpoint((key,)), LeasesReturned(()))

    def deliver(self, *ids: str) -> None:
        self.add(RecordedDelivery(ids), NothingReturned())

    def settle(
        self, job_id: str, to: State = State.COMPLETED, *, token: str | None = None, delay_seconds: float = 0.0
    ) -> None:
        self.exchange(settled=[self.sent(job_id, to, token=token, delay_seconds=delay_seconds)])

    def refuse(self, job_id: str, token: str | None = None) -> None:
        self.exchange(refused=[self.sent(job_id, token=token)])

    def reclaim(self, *ids: str, ending: Ending = Ending.LOST, answered: bool = True, after_ms: int = 20_000) -> None:
        self.now += after_ms
        ended = []
        for job_id in ids:
            self.deaths[job_id] = self.deaths.get(job_id, 0) + 1
            handed = self.jobs[job_id][0]
            error = AttemptError(attempt=self.attempts.get(job_id, 1), ending=ending, message="lost", at=self.now)
            token = self.tokens[job_id]
            one = ExpiredLease(
                job_id=job_id, queue=handed.queue, group=handed.group, token=token, worker="w", error=error
            )
            ended.append(one)
        self.add(RecordedReclaim(1000), ReclaimReturned(tuple(ended)) if answered else None)

    def change(self, action: Action, *ids: str, answered: bool = True, priority: int = 0) -> None:
        if action is Action.RETRY:
            self.deaths |= dict.fromkeys(ids, 0)
            self.attempts |= dict.fromkeys(ids, 1)
        self.add(RecordedChange(action, ids, priority), ChangeReturned(ids) if answered else None)

    def limit(self, group: str, limit: int | None) -> None:
        self.add(RecordedLimit("q", group, limit), NothingReturned())

    def pause(self, group: str | None, paused: bool = True) -> None:
        self.add(RecordedPause("q", group, paused), NothingReturned())

    def configure(self, **settings: int) -> None:
        self.add(RecordedConfigure("q", msgspec.convert(settings, QueueSettings)), NothingReturned())

    def report(self, job_id: str, token: str) -> None:
        self.add(RecordedReport((LeaseKey(job_id, 0, token),)), LeasesReturned(()))

    def adopt(self, job_id: str, group: str = "acme") -> None:
        handed = RecordedJob(id=job_id, queue="q", group=group)
        self.jobs[job_id] = (handed, len(self.jobs) + 1)
        self.add(RecordedAdopt(handed), AdoptReturned(self.lease(job_id)))

    def final(self, **states: State) -> list[Job]:
        return [self._job(job_id, state) for job_id, state in states.items()]

    def _job(self, job_id: str, state: State) -> Job:
        handed, sequence = self.jobs[job_id]
        return Job(
            id=job_id,
            kind="k",
            queue=handed.queue,
            group=handed.group,
            priority=handed.priority,
            payload=msgspec.Raw(b"{}"),
            state=state,
            attempt=1,
            max_attempts=3,
            deaths=self.deaths.get(job_id, 0),
            timeout_seconds=None,
            backoff=DEFAULT_BACKOFF,
            run_at=0,
            sequence=sequence,
            unique_key=None,
            tags=(),
            created_at=0,
        )

    def codes(self, final: Sequence[Job] | None = None) -> set[str]:
        return {violation.code for violation in check(self.history, final)}


def test_a_job_that_is_inserted_claimed_and_completed() -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    story.settle("a")
    assert story.codes(story.final(a=State.COMPLETED)) == set()
    assert story.codes([]) == set()  # pruned since
