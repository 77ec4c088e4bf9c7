"""The `Operations` protocol: everything a person does with jobs, queues, workers, schedules and tokens.

`operations.local` implements it on a store, `client.operations` through a server. Every change is
written to the audit log, by the side that has the store. What an app does with its own jobs is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView
from jobyard.api.schemas.workflows import OperationView, WorkflowRunView, WorkflowView
from jobyard.domain.access import AuditEntry, TokenInfo
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo


class SubmittedJob(NamedTuple):
    id: str
    created: bool  # False: an active job holds the unique key, and `id` is the id of that job


class Operations(Protocol):
    url: str  # of the store or the server, without secrets

    async def now(self) -> Instant: ...

    # Jobs

    async def submit(self, kind: str, payload: Any, options: Mapping[str, Any]) -> SubmittedJob: ...

    async def check_job(self, kind: str, payload: Any) -> None:
        """Raise BadInput if a job of this kind and payload would be rejected, as far as is known here."""

    async def job(self, job_id: str) -> Job:
        """Raises JobNotFound."""

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page: ...

    def walk(self, where: Filter) -> AsyncIterator[Job]:
        """All jobs that match, newest first."""

    async def count(self, where: Filter) -> int: ...
    async def explain(self, job_id: str) -> Explanation: ...

    async def end(self, job_id: str, timeout_seconds: float | None = None) -> Job:
        """Wait until the job is final. Raises ResultNotReady after the timeout."""

    async def result(self, job_id: str, timeout_seconds: float | None = None) -> bytes:
        """Wait for the result, as JSON; raises JobNotCompleted when the job ended without one."""

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        """Whether it woke the job. A job receives a signal with the same id once."""

    async def change_one(self, action: Action, job_id: str, *, reason: str = "", priority: int = 0) -> None:
        """Raises JobNotFound, or NotPossible with the reason."""

    async def change(
        self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0
    ) -> Changed: ...

    def change_matching(
        self, action: Action, where: Filter, *, reason: str = "", priority: int = 0
    ) -> AsyncIterator[Changed]:
        """Change all jobs that match; yields each batch."""

    async def why_unchanged(self, action: Action, job: Job) -> str: ...

    # Workflows

    async def workflows(self) -> Sequence[WorkflowView]:
        """The workflow files, by id."""

    async def run_workflow(
        self,
        workflow_id: str,
        params: Mapping[str, Any] | None = None,
        *,
        platform: str | None = None,
        priority: int | None = None,
    ) -> str:
        """Run a workflow file; returns the id of its job. Raises UnknownWorkflow, or BadInput."""

    async def workflow_run(self, job_id: str) -> WorkflowRunView:
        """A run with the states of its steps. Raises JobNotFound, also for jobs that run no workflow file."""

    def history(self, job_id: str, *, with_results: bool = False) -> AsyncIterator[OperationView]:
        """What a workflow has recorded, oldest first. Raises JobNotFound."""

    # Queues, groups and workers

    async def queues(self) -> list[QueueInfo]: ...

    async def queue(self, name: str) -> QueueInfo:
        """Raises BadOption for a queue that does not exist."""

    def groups(self, queue: str, after: str | None = None, page_size: int = 200) -> AsyncIterator[GroupInfo]:
        """Groups with jobs, a limit or a pause, by name; first the jobs without a group."""

    async def configure(self, queue: str, changes: Mapping[str, Any]) -> None:
        """Create a queue, or change the given settings; a change is kept, whatever is declared, until it is reset."""

    async def reset_settings(self, queue: str) -> None:
        """Let the declared settings of a queue apply again, or the defaults."""

    async def set_limit(self, queue: str, group: str, limit: int) -> None: ...
    async def remove_limit(self, queue: str, group: str) -> None: ...
    async def pause(self, queue: str, group: str | None = None, *, paused: bool = True) -> None: ...

    async def remove_queue(self, queue: str) -> None:
        """Remove an empty queue. Raises BadOption if it does not exist, NotPossible while it has jobs."""

    async def drain(self, queue: str) -> int:
        """Delete all waiting jobs of a queue."""

    async def workers(self) -> list[WorkerInfo]: ...

    async def control_worker(self, worker_id: str, control: str) -> None:
        """Ask a worker to be "quiet" or to "stop". Raises WorkerNotFound."""

    # Schedules: `fields` are those of `schedule_options.BY_FIELD`; NotFound is raised for an unknown name

    def schedules(self) -> AsyncIterator[ScheduleView]: ...
    async def schedule(self, name: str) -> ScheduleView: ...
    async def add_schedule(self, fields: Mapping[str, Any]) -> ScheduleView: ...
    async def edit_schedule(self, name: str, fields: Mapping[str, Any]) -> ScheduleView: ...
    async def pause_schedule(self, name: str) -> ScheduleView: ...
    async def resume_schedule(self, name: str) -> ScheduleView: ...
    async def remove_schedule(self, name: str) -> None: ...

    async def run_schedule(self, name: str) -> str:
        """Insert a job of the schedule now; returns the id of the job."""

    async def next_of_schedule(self, name: str, count: int) -> NextTicksResponse: ...

    def schedule_history(self, name: str) -> AsyncIterator[TickView]:
        """The decided instants of a schedule, newest first."""

    # Tokens and the audit log

    async def create_token(
        self,
        name: str,
        role: str,
        *,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        kinds: Sequence[str] = (),
        expire_seconds: float | None = None,
    ) -> tuple[TokenInfo, str]:
        """The second value is the token itself, which cannot be read again."""

    async def tokens(self) -> list[TokenInfo]: ...

    async def rotate_token(self, token_id: str, overlap_seconds: float = 0.0) -> tuple[TokenInfo, str] | None:
        """Give a token a new secret, the second value; the old one is accepted for `overlap_seconds` more."""

    async def revoke_token(self, token_id: str) -> bool:
        """Whether the token existed. Through a server, raises NotPossible for the last admin token of its scope."""

    def audit_log(self) -> AsyncIterator[AuditEntry]:
        """All entries, oldest first."""
