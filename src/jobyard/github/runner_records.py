"""Records of the runners that were launched, and the gates that hold launches back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, RunnerScope
from jobyard.domain.runners.names import name_prefix
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.github.records import Collection
from jobyard.ports.record_store import RecordStore

RUNNERS = "jobyard.runners.runners"
GATES = "jobyard.runners.gates"
# A gate that is not renewed says nothing about the present.
GATE_KEPT_SECONDS = 600.0


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a scope and profile wait until then."""

    scope: str
    profile: str
    code: str
    message: str
    until: Instant


class RunnerRecords:
    def __init__(self, records: RecordStore) -> None:
        self._runners = Collection(records, RUNNERS, Runner)
        self._gates = Collection(records, GATES, Gate, GATE_KEPT_SECONDS)
        self.all = self._runners.all
        self.get = self._runners.get
        self.remove = self._runners.remove
        self.remove_unchanged = self._runners.remove_unchanged
        self.gates = self._gates.all
        self.on_assigned: list[Callable[[str], None]] = []  # called with the name of a warm runner that has a job

    async def create(self, runner: Runner) -> bool:
        return await self._runners.create(runner.name, runner)

    async def change(self, name: str, change: Callable[[Runner], Runner]) -> Runner | None:
        """Change a runner; None if it is not known."""
        return await self._runners.update(name, lambda known: None if known is None else change(known))

    def tell_assigned(self, name: str) -> None:
        for callback in self.on_assigned:
            callback(name)

    async def of_ticket(self, owner: str, ticket_id: str) -> list[Runner]:
        """The runners of all attempts of a ticket."""
        return await self._runners.with_prefix(name_prefix(owner, ticket_id))

    async def bind(self, job: GitHubJob, now: Instant) -> Runner | None:
        """Note which job a runner has, or had: events of GitHub are the only truth about that."""
        if not job.runner_name or job.state not in (GitHubJobState.IN_PROGRESS, GitHubJobState.COMPLETED):
            return None

        def bound(runner: Runner) -> Runner:
            if runner.state is RunnerState.TERMINATING:
                return msgspec.structs.replace(runner, job_id=job.job_id)
            changed = msgspec.structs.replace(
                runner,
                job_id=job.job_id,
                runner_id=job.runner_id or runner.runner_id,
                online_at=runner.online_at or now,
                busy_at=runner.busy_at or now,
            )
            if job.state is GitHubJobState.COMPLETED:
                return changed.to(RunnerState.ENDED, now)
            return changed if runner.state is RunnerState.ENDED else changed.to(RunnerState.BUSY, now)

        return await self.change(job.runner_name, bound)

    # Gates

    async def gate(self, scope: RunnerScope, profile: str) -> Gate | None:
        return await self._gates.get(_gate_key(scope, profile))

    async def close_gate(self, scope: RunnerScope, profile: str, reason: Reason, now: Instant, seconds: float) -> None:
        gate = Gate(
            scope=str(scope), profile=profile, code=reason.code, message=reason.sentence, until=after(now, seconds)
        )
        await self._gates.put(_gate_key(scope, profile), gate)

    async def open_gate(self, scope: RunnerScope, profile: str) -> None:
        await self._gates.remove(_gate_key(scope, profile))


def _gate_key(scope: RunnerScope, profile: str) -> str:
    return f"{scope}|{profile}"


def timeline_of(runner: Runner) -> dict[str, Instant]:
    """The legs of a launch that are known, for the timeline of the job that the runner has."""
    stamps = {
        "planned": runner.planned_at,
        "minted": runner.minted_at,
        "created": runner.created_at,
        "running": runner.running_at,
        "online": runner.online_at,
    }
    return {name: at for name, at in stamps.items() if at}
