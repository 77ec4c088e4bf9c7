"""How runners end: tickets are settled, then instances, registrations and records are removed.

Every step can be repeated by any replica: settlements are fenced, removals are idempotent, and the record goes last.
"""

from __future__ import annotations

import contextlib

import msgspec

from jobyard.domain.job import AttemptError, Ending, Job, State
from jobyard.domain.runners.github_job import without_runner
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.domain.state import Transition
from jobyard.errors import LeaseLost
from jobyard.github.api import GitHubApi
from jobyard.github.errors import GitHubError
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Instance, Launcher
from jobyard.github.runner_events import RunnerEvents
from jobyard.github.unregister import unregister
from jobyard.ports.clock import Clock

# After a runner that failed, the next one of its kind waits this long, and twice as long after each further failure.
FAILURE_SECONDS = 10.0
MAX_FAILURE_SECONDS = 300.0
# GitHub may keep the registration of a killed runner as busy for a quarter of an hour.
UNREGISTER_MS = 1_800_000
CANNOT_START = "it cannot start"


class RunnerEnds:
    def __init__(
        self, settings: ManagerSettings, ingest: EventIngest, github: GitHubApi, events: RunnerEvents, clock: Clock
    ) -> None:
        self._settings = settings
        self._jobs = ingest.jobs
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._github = github
        self._events = events
        self._clock = clock
        self._failures: dict[tuple[str, str], int] = {}  # runners that failed in a row, by scope and profile

    # A runner that has ended

    async def finish(self, launcher: Launcher | None, runner: Runner, instance: Instance | None, why: str) -> None:
        """Settle the ticket, then remove what is left."""
        has_run = runner.job_id is not None or bool(runner.busy_at)
        if runner.ticket is not None or not runner.is_over:
            await self._end(runner, has_run=has_run, why=why)
        if launcher is not None and instance is not None:
            await launcher.remove(instance)
        ended_well = has_run and instance is not None and instance.exit_code == 0
        if not ended_well and not await unregister(self._github, runner):
            known = await self._runners.get(runner.name)
            if known is not None and self._clock.now() - known.since < UNREGISTER_MS:
                return  # GitHub believes that it is busy; the next pass tries again
        if runner.may_be_registered and not await self._is_settled(runner):
            return
        await self._runners.remove(runner.name)

    async def _is_settled(self, runner: Runner) -> bool:
        """Whether a registration that was requested and not confirmed can no longer appear."""
        known = await self._runners.get(runner.name)
        limit = self._settings.timeouts_of(runner.profile).minted
        return known is None or self._clock.now() - known.since >= limit * 1000

    async def _end(self, runner: Runner, *, has_run: bool, why: str) -> None:
        """What happens once, however often the removal has to be repeated, and by whichever replica."""
        if runner.ticket is not None:
            await self._settle(runner, has_run=has_run, why=why)
        now = self._clock.now()
        before: list[Runner] = []

        def over(known: Runner) -> Runner:
            before[:] = [known]
            return msgspec.structs.replace(known, ticket=None, is_over=True).to(RunnerState.TERMINATING, now, why)

        if await self._runners.change(runner.name, over) is None or before[0].is_over:
            return  # another replica, or this one before a restart, was faster
        self._events.tell("ended", before[0], why)
        if (job_id := before[0].job_id) is not None:
            await self._jobs.change(job_id, lambda known: without_runner(known, runner.name, now))
        if before[0].state is not RunnerState.TERMINATING:
            failed = not has_run and not await self._has_left_github(runner)
            self._count_failure(runner, failed=failed)
            if failed:
                await self._gate_failed(runner, why)

    async def _has_left_github(self, runner: Runner) -> bool:
        """Whether its registration is gone, as after a job: the event of that job may be late or lost."""
        if runner.runner_id is None:
            return False
        try:
            return await self._github.runner(runner.scope, runner.runner_id) is None
        except GitHubError:
            return True  # not known: other runners must not wait because of it

    async def _settle(self, runner: Runner, *, has_run: bool, why: str) -> None:
        assert runner.ticket is not None
        result = {"runner": runner.name, "ran_job": has_run, "job_id": runner.job_id, "reason": why}
        transition = Transition(to=State.COMPLETED, result=msgspec.json.encode(result))
        with contextlib.suppress(LeaseLost):  # another replica was faster, or the store was emptied
            await self._tickets.settle(runner.ticket, transition)

    # A runner that was never created

    async def give_back(self, runner: Runner, ticket: Job | None) -> None:
        """Remove the registration, and queue the ticket again."""
        if not await unregister(self._github, runner):
            return
        if ticket is not None:
            await self._requeue(runner, ticket)
        # Its launch may have gone on meanwhile, in a process that was only slow.
        if await self._runners.remove_unchanged(runner.name, runner):
            self._events.tell("removed", runner, "it was registered and never launched")

    async def _requeue(self, runner: Runner, ticket: Job) -> None:
        """It runs again, or fails after its last attempt."""
        assert runner.ticket is not None
        message = f"runner {runner.name} was not created, and its manager was lost"
        error = AttemptError(attempt=ticket.attempt, ending=Ending.LOST, message=message, worker=ticket.worker)
        is_last = ticket.attempt >= ticket.max_attempts
        to = State.FAILED if is_last else State.PENDING
        with contextlib.suppress(LeaseLost):
            await self._tickets.settle(runner.ticket, Transition(to=to, error=error, reason=message))

    # A runner that is removed

    async def remove(
        self, launcher: Launcher, runner: Runner, instance: Instance, why: str, *, failed: bool = False
    ) -> None:
        """Remove a runner that has no job: on GitHub first, where a refusal means that it has just got one."""
        now = self._clock.now()
        if runner.state is RunnerState.TERMINATING:
            await launcher.remove(instance, force=True)
            # From now on it has the time-out again, so that each removal by force is logged once.
            again = await self._runners.change(runner.name, lambda known: msgspec.structs.replace(known, since=now))
            if again is not None:
                self._events.tell("removed", again, why)
            return
        may_have_job = runner.state not in (RunnerState.BUSY, RunnerState.ENDED)
        if may_have_job and not await unregister(self._github, runner):
            busy = await self._runners.change(
                runner.name,
                lambda known: msgspec.structs.replace(known, busy_at=known.busy_at or now).to(RunnerState.BUSY, now),
            )
            if busy is not None:
                self._events.tell("busy", busy, "GitHub refused to remove it")
            return
        before: list[Runner] = []

        def removed(known: Runner) -> Runner:
            before[:] = [known]
            return known.to(RunnerState.TERMINATING, now, why)

        changed = await self._runners.change(runner.name, removed)
        if changed is not None and before[0].state is not RunnerState.TERMINATING:
            self._events.tell("removed", changed, why)
            if failed:
                self._count_failure(runner, failed=True)
                await self._gate_failed(runner, why)
        await launcher.remove(instance)

    # Failures

    def _count_failure(self, runner: Runner, *, failed: bool) -> None:
        key = (str(runner.scope), runner.profile)
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
        else:
            self._failures.pop(key, None)

    async def _gate_failed(self, runner: Runner, why: str) -> None:
        failures = self._failures.get((str(runner.scope), runner.profile), 1)
        seconds = min(MAX_FAILURE_SECONDS, FAILURE_SECONDS * 2 ** min(failures - 1, 10))
        reason = Reason("runner_failed", f"Runner {runner.name} had no job: {why.rstrip('.')}.")
        await self._runners.close_gate(runner.scope, runner.profile, reason, self._clock.now(), seconds)
