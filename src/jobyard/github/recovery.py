"""Recovery of lost events: failed deliveries are redelivered, repositories are scanned, waiting jobs are checked."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, JobEvent
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import GitHubApi, HookDelivery
from jobyard.github.errors import GitHubError, GitHubRateLimited, GitHubRejected
from jobyard.github.event_ingest import EventIngest
from jobyard.github.job_records import Repository
from jobyard.github.queued_check import store_answer
from jobyard.github.records import Collection
from jobyard.ports.clock import Clock
from jobyard.ports.record_store import RecordStore

log = logging.getLogger("jobyard.runners")

STATE = "jobyard.runners.recovery"
# GitHub lists deliveries of the last 7 days on an Enterprise Server, of 3 days on github.com.
MAX_LOOK_BACK_MS = 7 * 86_400_000
# Each scan looks this far behind the last one: a delivery may be listed late.
OVERLAP_MS = 15 * 60_000
# A delivery that fails at this moment may be answered by the next attempt of GitHub's own proxy.
SETTLED_MS = 10_000
# GitHub fails a job that was queued for a day.
QUEUE_LIMIT_MS = 86_400_000
MAX_REDELIVERIES = 5
MAX_LISTED = 10_000
# Bounds of one round, so that a large backlog does not use up the rate limit.
MAX_CHECKS = 50
MAX_SCANS = 30
MAX_CHANGED_REPOSITORIES = 20

RecoveryObserver = Callable[[str, int], None]  # "redelivered" deliveries or "found" jobs, and how many


class RecoveryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    scanned_at: Instant = 0  # deliveries up to then were looked at
    redelivered: dict[str, int] = {}  # how often, by guid


class Recovery:
    def __init__(
        self,
        records: RecordStore,
        settings: ManagerSettings,
        ingest: EventIngest,
        github: GitHubApi,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._ingest = ingest
        self._github = github
        self._clock = clock
        self._state = Collection(records, STATE, RecoveryState)
        self._next_scan = 0
        self._cannot_redeliver = False
        self.suspects: dict[str, Repository] = {}  # with a job that ran before it was known, by name
        self.observers: list[RecoveryObserver] = []

    def _tell(self, what: str, count: int) -> None:
        for observer in self.observers:
            observer(what, count)

    # Deliveries

    async def redeliver_failed(self) -> int:
        """Ask GitHub to deliver again what was not acknowledged; returns how much it was."""
        if self._cannot_redeliver:
            return 0
        now = self._clock.now()
        known = await self._state.get("deliveries")
        state = known or RecoveryState()
        since = max(now - MAX_LOOK_BACK_MS, state.scanned_at - OVERLAP_MS)
        try:
            attempts = await self._deliveries(since)
        except GitHubRejected as error:
            self._cannot_redeliver = True
            log.warning("deliveries cannot be listed, so lost ones are found by scans only: %s", error)
            return 0
        failed = [newest for newest in unacknowledged(attempts) if newest.delivered_at <= now - SETTLED_MS]
        if known is None:
            # A new or emptied store: jobs of the last day may still be queued, although their events were acknowledged.
            failed += recently_queued(attempts, now - QUEUE_LIMIT_MS)
        counts = {guid: count for guid, count in state.redelivered.items() if guid in attempts}
        failed = [delivery for delivery in failed if counts.get(delivery.guid, 0) < MAX_REDELIVERIES]
        for delivery in failed:
            counts[delivery.guid] = counts.get(delivery.guid, 0) + 1
            with self._one_of_many(f"the redelivery of {delivery.guid}"):
                await self._github.redeliver(delivery)
                self._tell("redelivered", 1)
        if failed:
            why = "of the last day may be unknown to this new store" if known is None else "were not acknowledged"
            log.warning("%d deliveries %s; GitHub was asked to send them again", len(failed), why)
        oldest = min((delivery.delivered_at for delivery in failed), default=now)
        await self._state.put("deliveries", RecoveryState(scanned_at=min(oldest, now), redelivered=counts))
        return len(failed)

    async def _deliveries(self, since: Instant) -> dict[str, list[HookDelivery]]:
        """All attempts since then, by guid, newest first."""
        found: dict[str, list[HookDelivery]] = defaultdict(list)
        listed = 0
        async for delivery in self._github.deliveries(since):
            listed += 1
            if delivery.event == "workflow_job":
                found[delivery.guid].append(delivery)
            if listed >= MAX_LISTED:
                break
        return found

    # Scans

    async def scan_repositories(self, *, every: bool = False) -> int:
        """Enter jobs that GitHub has queued and the manager does not know; a part of the repositories per call."""
        repositories = sorted(await self._recent_repositories(every=every), key=lambda each: each.full_name)
        if every or not repositories:
            chosen = repositories
        else:
            start = self._next_scan % len(repositories)
            chosen = (repositories[start:] + repositories[:start])[:MAX_SCANS]
            self._next_scan = start + MAX_SCANS
        found = 0
        for repository in chosen:
            self.suspects.pop(repository.full_name, None)
            with self._one_of_many(f"the scan of {repository.full_name}"):
                found += await self.scan(repository)
        return found

    async def scan_suspects(self) -> None:
        """Repositories with a job that ran before it was known: other events of theirs may be lost, too."""
        suspects, self.suspects = self.suspects, {}
        for repository in suspects.values():
            with self._one_of_many(f"the scan of {repository.full_name}"):
                await self.scan(repository)

    @contextlib.contextmanager
    def _one_of_many(self, what: str) -> Iterator[None]:
        """A failure of one must not stop the others, such as a repository that was deleted; a rate limit stops all."""
        try:
            yield
        except GitHubRateLimited:
            raise
        except GitHubError as error:
            log.warning("%s failed: %s", what, error)

    async def _recent_repositories(self, *, every: bool) -> list[Repository]:
        """Repositories with events of the last day; with `every`, also those that GitHub says were changed last."""
        found = {each.full_name: each for each in await self._ingest.jobs.repositories()}
        if not every:
            return list(found.values())
        owners = {each.org_name: each.owner_is_user for each in found.values()}
        for org in sorted({*self._settings.organizations, *owners}):
            with self._one_of_many(f"the list of the repositories of {org}"):
                for name in (await self._github.repositories(org))[:MAX_CHANGED_REPOSITORIES]:
                    repository = Repository(full_name=name, org_name=org, owner_is_user=owners.get(org, False))
                    found.setdefault(name, repository)
        return list(found.values())

    async def scan(self, repository: Repository) -> int:
        now, found = self._clock.now(), 0
        for job in await self._github.queued_jobs(repository.full_name):
            known = await self._ingest.jobs.get(job.job_id)
            if known is not None and not known.in_doubt and known.state is job.state and known.profile is not None:
                continue  # one without a profile may be served by now
            owner = {"org_name": repository.org_name, "owner_is_user": repository.owner_is_user}
            described = msgspec.structs.replace(job, **owner)
            event = JobEvent(action=job.state.action, job=described, received_at=now, is_answer=True)
            await self._ingest.receive(event)
            found += known is None
        if found:
            self._tell("found", found)
            log.warning(
                "%d jobs of %s are queued on GitHub, and no event of them was received", found, repository.full_name
            )
        return found

    # Jobs that still wait

    async def check_waiting(self, *, older_than_seconds: float) -> int:
        """Compare jobs that wait, or run, for long with GitHub; returns how many had changed."""
        now = self._clock.now()
        limit = now - older_than_seconds * 1000
        jobs = [job for job in await self._ingest.jobs.active() if max(job.checked_at, job.received_at) <= limit]
        jobs.sort(key=lambda job: (job.checked_at, job.order))
        changed = 0
        for job in jobs[:MAX_CHECKS]:
            with self._one_of_many(f"the check of job {job.job_id}"):
                changed += await self.check(job)
        return changed

    async def check(self, job: GitHubJob) -> bool:
        found = await self._github.job(job.repo_full_name, job.job_id)
        return await store_answer(self._ingest, job, found, self._clock.now())


def recently_queued(attempts: dict[str, list[HookDelivery]], since: Instant) -> list[HookDelivery]:
    """The newest attempt of each acknowledged queued event since then, oldest first."""
    found = [
        max(tries, key=lambda each: each.delivered_at)
        for tries in attempts.values()
        if tries[0].action == "queued" and any(each.succeeded for each in tries)
    ]
    return sorted((each for each in found if each.delivered_at >= since), key=lambda each: each.delivered_at)


def unacknowledged(attempts: dict[str, list[HookDelivery]]) -> list[HookDelivery]:
    """The newest attempt of each delivery that never succeeded, oldest first."""
    newest = [
        max(tries, key=lambda each: each.delivered_at)
        for tries in attempts.values()
        if not any(each.succeeded for each in tries)
    ]
    return sorted(newest, key=lambda each: each.delivered_at)
