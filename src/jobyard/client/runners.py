"""Client methods for GitHub jobs and their runners."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.api.schemas import runners as schemas
from jobyard.client.address import path
from jobyard.client.transport import Transport
from jobyard.operations.runners import ANSWER_SECONDS

PAGE_SIZE = 500


class RunnerEndpoints:
    """Implements `operations.runners.RunnerOperations`."""

    _transport: Transport

    def runner_jobs(
        self, *, org: str | None = None, state: str | None = None, profile: str | None = None
    ) -> AsyncIterator[schemas.RunnerJobView]:
        """Unfinished GitHub jobs in the order of launch. `state`: queued, held_back, in_progress or unserved."""
        query = {"org": org, "state": state, "profile": profile, "page_size": PAGE_SIZE}
        return self._transport.walk("/v1/runners/jobs", schemas.RunnerJobPage, query)

    async def runner_job(self, job_id: int) -> schemas.RunnerJobDetails:
        """A GitHub job with its timeline, and why it waits."""
        return await self._transport.call("GET", path("v1", "runners", "jobs", str(job_id)), schemas.RunnerJobDetails)

    def runner_pods(self, *, org: str | None = None, state: str | None = None) -> AsyncIterator[schemas.RunnerPodView]:
        """Runners by name."""
        query = {"org": org, "state": state, "page_size": PAGE_SIZE}
        return self._transport.walk("/v1/runners/pods", schemas.RunnerPodPage, query)

    async def runner_orgs(self) -> schemas.RunnerOrgList:
        """Organizations with their limits and jobs, and the totals."""
        return await self._transport.call("GET", "/v1/runners/orgs", schemas.RunnerOrgList)

    async def requeue_runner_job(self, repo: str, job_id: int) -> schemas.RunnerJobDetails:
        """Enter a job again that GitHub still has queued.

        Raises NotFound, NotPossible with the reason, or a GitHubError if GitHub cannot be asked.
        """
        return await self._transport.call(
            "POST",
            "/v1/runners/jobs/requeue",
            schemas.RunnerJobDetails,
            body=schemas.RequeueRequest(repo=repo, job_id=job_id),
            wait_seconds=ANSWER_SECONDS,
        )
