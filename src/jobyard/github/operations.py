"""`RunnerOperations` on a store in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from jobyard.api.schemas.runners import RunnerJobDetails, RunnerJobView, RunnerOrgList, RunnerPodView
from jobyard.domain.access import OWNER
from jobyard.domain.runners.runner import RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.errors import BadOption, did_you_mean
from jobyard.github.api import GitHubApi
from jobyard.github.event_ingest import EventIngest
from jobyard.github.job_records import GitHubJobs, Repository
from jobyard.github.queries import JOB_STATES, RunnerQueries, job_not_found
from jobyard.github.requeue import requeue
from jobyard.operations.audit_log import Audit
from jobyard.ports.store import Store

if TYPE_CHECKING:
    from jobyard.operations.runners import RunnerOperations

PAGE = 500


class LocalRunnerOperations:
    """`make_github` is called for the first job that is checked against GitHub."""

    def __init__(self, store: Store, settings: ManagerSettings, make_github: Callable[[], GitHubApi]) -> None:
        self._store = store
        self._queries = RunnerQueries(store, settings)
        self._ingest = EventIngest(store, settings)
        self._make_github = make_github

    async def runner_jobs(
        self, *, org: str | None = None, state: str | None = None, profile: str | None = None
    ) -> AsyncIterator[RunnerJobView]:
        _check_state(state, JOB_STATES)
        cursor: str | None = None
        while True:
            page = await self._queries.jobs(org=org, state=state, profile=profile, limit=PAGE, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.cursor) is None:
                return

    async def runner_job(self, job_id: int) -> RunnerJobDetails:
        found = await self._queries.job(job_id)
        if found is None:
            raise job_not_found(job_id)
        return found

    async def runner_pods(self, *, org: str | None = None, state: str | None = None) -> AsyncIterator[RunnerPodView]:
        _check_state(state, [each.value for each in RunnerState])
        chosen = None if state is None else RunnerState(state)
        cursor: str | None = None
        while True:
            page = await self._queries.pods(org=org, state=chosen, limit=PAGE, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.cursor) is None:
                return

    async def runner_orgs(self) -> RunnerOrgList:
        return await self._queries.orgs()

    async def requeue_runner_job(self, repo: str, job_id: int) -> RunnerJobDetails:
        github = self._make_github()
        await github.start()
        try:
            await requeue(self._ingest, github, repo, job_id, await self._store.now())
        finally:
            await github.stop()
        await Audit(self._store).record(OWNER, "runners.requeue", f"{repo}/{job_id}", {})
        self._queries.refresh()
        return await self.runner_job(job_id)


def _check_state(state: str | None, known: tuple[str, ...] | list[str]) -> None:
    if state is not None and state not in known:
        raise BadOption(
            f"Unknown state {state}.{did_you_mean(state, known)} Known: {', '.join(known)}.", option="state"
        )


if TYPE_CHECKING:

    def _implements(operations: LocalRunnerOperations) -> RunnerOperations:
        return operations


async def known_orgs(store: Store, settings: ManagerSettings) -> set[str]:
    """Organizations with jobs, runners, a limit or use in this month."""
    return {org.name for org in (await RunnerQueries(store, settings).orgs()).items}


async def recent_repositories(store: Store) -> list[Repository]:
    """Repositories with events in the last day, by name."""
    return sorted(await GitHubJobs(store, ()).repositories(), key=lambda each: each.full_name)
