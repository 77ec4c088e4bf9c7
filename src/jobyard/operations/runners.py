"""The `RunnerOperations` protocol: what people do with GitHub jobs and their runners.

`github.operations` implements it on a store, `client.Client` through a server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from jobyard.api.schemas.runners import RunnerJobDetails, RunnerJobView, RunnerOrgList, RunnerPodView


class RunnerOperations(Protocol):
    def runner_jobs(
        self, *, org: str | None = None, state: str | None = None, profile: str | None = None
    ) -> AsyncIterator[RunnerJobView]:
        """Unfinished GitHub jobs in the order of launch. `state`: waiting, queued, in_progress, or unserved."""

    async def runner_job(self, job_id: int) -> RunnerJobDetails:
        """Raises JobNotFound."""

    def runner_pods(self, *, org: str | None = None, state: str | None = None) -> AsyncIterator[RunnerPodView]:
        """Runners by name."""

    async def runner_orgs(self) -> RunnerOrgList: ...

    async def requeue_runner_job(self, repo: str, job_id: int) -> RunnerJobDetails:
        """Enter a job again that GitHub has queued. Raises NotFound, or NotPossible with the reason."""
