"""Workflow runs and their jobs: creation, gates, concurrency, start, end, re-run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobyard.demo.fake_github.accounts_json import Json
from jobyard.demo.fake_github.core import Core
from jobyard.demo.fake_github.deliveries import Webhooks
from jobyard.demo.fake_github.entities import (
    Deployment,
    Installation,
    Job,
    JobSpec,
    JobStatus,
    Owner,
    Repository,
    Run,
    Runner,
    RunnerName,
)


class Jobs:
    """Calls `on_queued` when a job may be assigned and `on_ended` when it ended, before the event is sent."""

    def __init__(self, core: Core, webhooks: Webhooks, installation_of: Callable[[Owner], Installation | None]) -> None:
        self._core = core
        self._webhooks = webhooks
        self._installation_of = installation_of
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        # Jobs that a runner may be given, by owner.
        self._queued: dict[int, dict[int, Job]] = {}
        self.on_queued: Callable[[Job], None] = lambda job: None
        self.on_ended: Callable[[Job], None] = lambda job: None

    def create_run(
        self,
        repository: Repository,
        specs: Sequence[JobSpec],
        *,
        max_parallel: int | None = None,
        concurrency: str | None = None,
        workflow_name: str = "CI",
        event: str = "push",
    ) -> Run:
        now = self._core.clock()
        repository.last_run_number += 1
        run = Run(
            id=self._core.next_id("run", 8_000_000_001),
            repository=repository,
            number=repository.last_run_number,
            specs=list(specs),
            head_sha=self._core.sha(),
            workflow_name=workflow_name,
            event=event,
            created_at=now,
            started_at=now,
            updated_at=now,
            max_parallel=max_parallel,
            concurrency=concurrency,
        )
        self._replace_pending(run)
        self.runs[run.id] = run
        self._create_ready(run)
        return run

    def queued_of(self, owner: Owner) -> list[Job]:
        return list(self._queued.get(owner.id, {}).values())

    def status(self, run: Run) -> tuple[str, str | None]:
        """Status and conclusion of a run. One that has started stays `in_progress` while jobs are queued."""
        if run.ended_as is not None:
            return "completed", run.ended_as
        jobs = run.latest()
        states = {job.status for job in jobs}
        if states == {"completed"} and len(jobs) == len(run.specs):
            conclusions = [job.conclusion for job in jobs]
            for worst in ("failure", "timed_out", "cancelled", "action_required"):
                if worst in conclusions:
                    return "completed", worst
            return "completed", "skipped" if set(conclusions) == {"skipped"} else "success"
        for state in ("in_progress", "completed", "queued", "waiting"):
            if state in states:
                return ("in_progress" if state == "completed" else state), None
        return "pending", None

    def approve(self, job: Job) -> None:
        """Open the environment gate: a second `queued` event follows."""
        if job.status != "waiting" or job.deployment is None:
            raise ValueError(f"Cannot approve job {job.id}: it is {job.status}.")
        job.deployment.updated_at = self._core.clock()
        job.status = "pending" if self._blocked(job.run) else "queued"
        self._emit(job, "queued")
        if job.status == "queued":
            self.enqueue(job)

    def reject(self, job: Job) -> None:
        if job.status != "waiting":
            raise ValueError(f"Cannot reject job {job.id}: it is {job.status}.")
        self.complete(job, "failure")

    def cancel_run(self, run: Run) -> None:
        run.cancelled = True
        for job in run.latest():
            self.cancel_job(job)
        for position in range(len(run.specs)):
            if position not in run.current:
                self._create_job(run, position, conclusion="cancelled")

    def cancel_job(self, job: Job) -> None:
        if job.status == "completed":
            return
        if job.runner_named is None and self._core.hits("zero_runner"):
            job.runner_named = RunnerName(id=0, name="", group_id=0, group_name="")
        self.complete(job, "cancelled")

    def rerun(self, run: Run, *, failed_only: bool = False) -> list[Job]:
        """A new attempt: new job ids, and `completed` events of earlier jobs are sent again."""
        if self.status(run)[0] != "completed":
            raise ValueError(f"Cannot re-run run {run.id}: it has not ended.")
        earlier = run.latest()
        run.attempt += 1
        run.ended_as, run.cancelled = None, False
        run.started_at = run.updated_at = self._core.clock()
        before = len(run.jobs)
        for job in earlier:
            if job.status == "completed":
                self._emit(job, "completed")
            if not failed_only or job.conclusion != "success":
                del run.current[job.position]
        self._create_ready(run)
        return run.jobs[before:]

    def fail_startup(self, run: Run) -> None:
        """The run ends as `startup_failure`; its queued jobs stay `queued` and send no event."""
        run.ended_as = "startup_failure"
        run.updated_at = self._core.clock()
        for job in run.latest():
            self._dequeue(job)

    def create_check_run(self, repository: Repository, name: str = "coverage") -> int:
        """Another program reports a check: its `completed` event names no runner and no labels."""
        number = self._next_job_id()
        body = self._core.actions_json.foreign_job(repository, number, name, self._core.clock())
        self._send(repository, "completed", body)
        return number

    def send_null_job(self, repository: Repository, action: str = "completed") -> None:
        self._send(repository, action, None)

    def enqueue(self, job: Job) -> None:
        """Offer a job to runners, in the order in which it first became queued."""
        self._queued.setdefault(job.repository.owner.id, {})[job.id] = job
        if job.expiry is None:
            job.queued_at = self._core.clock()
            job.expiry = self._core.later(self._core.timings.queue_limit, self._expire, job)
        self.on_queued(job)

    def assign(self, job: Job, runner: Runner) -> None:
        self._queued[job.repository.owner.id].pop(job.id)
        job.runner = runner

    def start(self, job: Job) -> None:
        runner = job.runner
        assert runner is not None
        job.status = "in_progress"
        job.started_at = job.run.updated_at = self._core.clock()
        job.runner_named = RunnerName(
            id=runner.id, name=runner.name, group_id=runner.group.id, group_name=runner.group.name
        )
        self._core.cancel(job.expiry)
        self._emit(job, "in_progress")

    def complete(self, job: Job, conclusion: str) -> None:
        if job.status == "completed":
            return
        job.status, job.conclusion = "completed", conclusion
        job.completed_at = job.run.updated_at = self._core.clock()
        self._core.cancel(job.timer)
        self._dequeue(job)
        self.on_ended(job)
        self._emit(job, "completed")
        self._release(job.run)

    def _expire(self, job: Job) -> None:
        if job.status == "queued" and job.run.ended_as is None:
            self.complete(job, "failure")

    def _dequeue(self, job: Job) -> None:
        self._core.cancel(job.expiry)
        self._queued.get(job.repository.owner.id, {}).pop(job.id, None)

    def _create_ready(self, run: Run) -> None:
        """Create the jobs whose needs have ended; a failed need skips the job."""
        for position, spec in enumerate(run.specs):
            needs = [run.current.get(need) for need in spec.needs]
            if position in run.current or not all(need is not None and need.status == "completed" for need in needs):
                continue
            failed = any(need is not None and need.conclusion != "success" for need in needs)
            self._create_job(run, position, conclusion="skipped" if failed or spec.skipped else None)

    def _create_job(self, run: Run, position: int, *, conclusion: str | None = None) -> Job:
        spec, now = run.specs[position], self._core.clock()
        job = Job(
            id=self._next_job_id(),
            run=run,
            position=position,
            spec=spec,
            name=spec.name or f"build ({position + 1})",
            attempt=run.attempt,
            status=self._first_status(run, spec),
            created_at=now,
            queued_at=now,
        )
        if spec.environment is not None:
            number = self._core.next_id("deployment", 145_000_001)
            job.deployment = Deployment(id=number, environment=spec.environment, created_at=now, updated_at=now)
        run.jobs.append(job)
        run.current[position] = job
        self.jobs[job.id] = job
        if conclusion is not None:
            self.complete(job, conclusion)
            return job
        self._emit(job, "queued")
        if job.status == "waiting":
            self._emit(job, "waiting")
        elif job.status == "queued":
            self.enqueue(job)
        return job

    def _first_status(self, run: Run, spec: JobSpec) -> JobStatus:
        if spec.environment is not None:
            return "waiting"
        return "pending" if self._blocked(run) else "queued"

    def _blocked(self, run: Run) -> bool:
        """Whether `max-parallel` or the concurrency group keeps another job of the run from being offered."""
        active = sum(job.status in ("queued", "in_progress") for job in run.latest())
        if run.max_parallel is not None and active >= run.max_parallel:
            return True
        return run.concurrency is not None and self._holder(run) is not run

    def _holder(self, run: Run) -> Run:
        """The run that has the concurrency group: the oldest that has not ended."""
        same = [
            each
            for each in self.runs.values()
            if each.repository is run.repository and each.concurrency == run.concurrency
        ]
        return next((each for each in same if not each.jobs or self.status(each)[0] != "completed"), run)

    def _replace_pending(self, run: Run) -> None:
        """At most one run of a concurrency group waits: a newer one cancels the one that waited."""
        if run.concurrency is None:
            return
        for other in list(self.runs.values()):
            same = other.repository is run.repository and other.concurrency == run.concurrency
            if same and self.status(other)[0] == "pending":
                self.cancel_run(other)

    def _release(self, ended: Run) -> None:
        """Offer what the end of a job unblocks. Released jobs send no second `queued` event."""
        runs = []
        if ended.ended_as is None and not ended.cancelled:
            self._create_ready(ended)
            runs.append(ended)
        if ended.concurrency is not None and self.status(ended)[0] == "completed":
            runs.append(self._holder(ended))
        for run in runs:
            for job in run.latest():
                if job.status == "pending" and not self._blocked(run):
                    job.status = "queued"
                    self.enqueue(job)

    def _emit(self, job: Job, action: str) -> None:
        actions = self._core.actions_json
        deployment = actions.deployment(job, job.deployment) if job.deployment is not None else None
        self._send(job.repository, action, actions.event_job(job), deployment)

    def _send(self, repository: Repository, action: str, body: Json | None, deployment: Json | None = None) -> None:
        def payload(installation: Installation | None, organization: bool) -> Json:
            return self._core.actions_json.event(
                repository,
                action,
                body,
                deployment=deployment,
                installation=installation,
                organization=organization,
            )

        self._webhooks.emit(repository, "workflow_job", action, payload, self._installation_of(repository.owner))

    def _next_job_id(self) -> int:
        return self._core.next_id("job", 21_000_000_001)
