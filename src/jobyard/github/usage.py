"""Minutes that runners worked, by organization and month."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import rfc3339
from jobyard.domain.runners.github_job import GitHubJob
from jobyard.github.records import Collection
from jobyard.ports.record_store import RecordStore

USAGE = "jobyard.runners.usage"
KEPT_MONTHS = 13


class OrgUsage(msgspec.Struct, frozen=True, kw_only=True):
    org_name: str
    minutes: dict[str, float] = {}  # by month, as in 2026-11
    jobs: dict[str, int] = {}


class RunnerUsage:
    def __init__(self, records: RecordStore) -> None:
        self._usage = Collection(records, USAGE, OrgUsage)
        self.all = self._usage.all

    async def add(self, job: GitHubJob) -> None:
        """Add the time of a job that a runner of ours has run."""
        month = rfc3339(job.completed_at)[:7]
        started = job.started_at or job.completed_at
        minutes = max(0, job.completed_at - started) / 60_000

        def added(known: OrgUsage | None) -> OrgUsage:
            known = known or OrgUsage(org_name=job.org_name)
            spent = {**known.minutes, month: known.minutes.get(month, 0.0) + minutes}
            counts = {**known.jobs, month: known.jobs.get(month, 0) + 1}
            kept = sorted(spent)[-KEPT_MONTHS:]
            return OrgUsage(
                org_name=job.org_name,
                minutes={name: spent[name] for name in kept},
                jobs={name: counts[name] for name in kept if name in counts},
            )

        await self._usage.update(job.org_name, added)
