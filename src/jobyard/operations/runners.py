"""The `RunnerOperations` protocol: what people do with GitHub jobs and their runners.

`github.operations` implements it on a store, `client.Client` through a server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from jobyard.api.schemas.runners import RunnerJobDetails, RunnerJobView, RunnerOrgList, RunnerPodView

# How long GitHub may take to answer about one job. A client of the server waits this much longer than usual for the
# response, so that it learns that it was GitHub.
ANSWER_SECONDS = 20.0


class RunnerOperations(Protocol):
    def runner_jobs(
        self, *, org: str | None = None, state: str | None = None, profile: str | None = None
    ) -> AsyncIterator[RunnerJobView]:
        """Unfinished GitHub jobs in the order of launch. `state`: queued, held_back, in_progress or unserved."""

    async def runner_job(self, job_id: int) -> RunnerJobDetails:
        """Raises JobNotFound."""

    def runner_pods(self, *, org: str | None = None, state: str | None = None) -> AsyncIterator[RunnerPodView]:
        """Runners by name."""

    async def runner_orgs(self) -> RunnerOrgList: ...

    async def requeue_runner_job(self, repo: str, job_id: int) -> RunnerJobDetails:
        """Enter a job again that GitHub has queued. Raises NotFound, or NotPossible with the reason."""
