"""Jobyard methods for jobs by id: the same names, arguments and results as those of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from jobyard.api.convert import explanation_view, filter_of, readable_job, readable_summary
from jobyard.api.schemas.jobs import MAX_PAGE, BulkResponse, ExplanationView, JobFilter, JobPage, JobSummary, JobView
from jobyard.api.schemas.workflows import OperationView
from jobyard.domain import options
from jobyard.domain.job import State
from jobyard.domain.job_options import Seconds, seconds_of
from jobyard.errors import BadOption
from jobyard.executors.python.payload import to_json
from jobyard.operations.commands import DEAD
from jobyard.operations.explanations import explain_position
from jobyard.operations.local import store_commands
from jobyard.operations.queries import Queries
from jobyard.operations.workflow_history import operation_views
from jobyard.ports.admin_store import Action, Filter

if TYPE_CHECKING:
    from jobyard.ports.store import Store

HISTORY_PAGE = 200


class JobVerbs:
    store: Store
    max_payload_bytes: int

    # Read

    async def get(self, job_id: str) -> JobView:
        """A job as it is now: payload and result as data, times as datetime. Raises JobNotFound."""
        return readable_job(await Queries(self.store).job(job_id))

    async def result(self, job_id: str, timeout: Seconds | None = None) -> Any:
        """Wait for the result of a job, as data.

        Raises JobFailed, JobTimedOut or JobCancelled if it ended without one, and ResultNotReady after the timeout.
        """
        return msgspec.json.decode(await Queries(self.store).result(job_id, seconds_of(timeout)))

    async def end(self, job_id: str, timeout: Seconds | None = None) -> JobView:
        """Wait until the job is final, however it ended. Raises ResultNotReady after the timeout."""
        return readable_job(await Queries(self.store).end(job_id, seconds_of(timeout)))

    async def page(
        self, where: JobFilter | None = None, *, page_size: int = 50, page_token: str | None = None
    ) -> JobPage:
        """One page, newest first. A short or empty page may have a token: continue until there is none."""
        size = options.check_integer("page_size", page_size, 1, MAX_PAGE)
        found = await self.store.find(filter_of(where), size, page_token)
        token = UNSET if found.cursor is None else found.cursor
        return JobPage(items=tuple(map(readable_summary, found.jobs)), next_page_token=token)

    def jobs(self, where: JobFilter | None = None, *, page_size: int = 200) -> AsyncIterator[JobSummary]:
        """All jobs that match, newest first, read page by page. Also those that chains, groups and batches insert."""
        return self._walk(filter_of(where), page_size)

    def dead_letters(self, where: JobFilter | None = None, *, page_size: int = 200) -> AsyncIterator[JobSummary]:
        """Jobs that are FAILED or TIMEOUT, newest first."""
        return self._walk(filter_of(where, DEAD), page_size, DEAD)

    async def _walk(
        self, where: Filter, page_size: int, states: Sequence[State] = tuple(State)
    ) -> AsyncIterator[JobSummary]:
        cursor: str | None = None
        while True:
            page = await self.store.find(where, options.check_integer("page_size", page_size, 1, MAX_PAGE), cursor)
            for job in page.jobs:
                if job.state in states:
                    yield readable_summary(job)
            cursor = page.cursor
            if cursor is None:
                return

    async def explain(self, job_id: str) -> ExplanationView:
        """Why the job is waiting."""
        return explanation_view(await explain_position(self.store, await self.store.position(job_id)))

    async def history(self, job_id: str, *, with_results: bool = False) -> AsyncIterator[OperationView]:
        """What a workflow has recorded, oldest first."""
        job, after = await Queries(self.store).job(job_id), 0
        while True:
            page, following = await operation_views(
                self.store, job, after=after, limit=HISTORY_PAGE, with_results=with_results
            )
            for each in page:
                yield each
            if following is None:
                return
            after = following

    # Change

    async def cancel(self, job_id: str, reason: str = "") -> JobView:
        """A waiting job ends now; a running one is asked to stop. Raises NotPossible if it is final."""
        return await self._change(Action.CANCEL, job_id, reason=reason)

    async def retry(self, job_id: str) -> JobView:
        """Run the job again. Raises NotPossible unless it failed or was cancelled."""
        return await self._change(Action.RETRY, job_id)

    async def run_now(self, job_id: str) -> JobView:
        """Make a job that waits for its time due. Raises NotPossible if it is not delayed."""
        return await self._change(Action.RUN_NOW, job_id)

    async def prioritise(self, job_id: str, priority: int) -> JobView:
        """Change the priority of a job that waits."""
        return await self._change(Action.PRIORITISE, job_id, priority=priority)

    async def delete(self, job_id: str) -> None:
        """Remove the job from the store. Raises NotPossible while it is running."""
        await store_commands(self.store).change_one(Action.DELETE, job_id)

    async def signal(self, job_id: str, name: str, data: Any = None, *, signal_id: str | None = None) -> bool:
        """Wake the job if it waits for this signal; otherwise the signal is stored until it does. True: it woke.

        A job receives a signal with the same `signal_id` once, so that sending is safe to repeat.
        """
        options.check_name("signal", name)
        if signal_id is not None:
            options.check_name("signal_id", signal_id)
        encoded = to_json(data, "signal data", self.max_payload_bytes)
        return await self.store.signal(job_id, name, encoded, signal_id=signal_id)

    async def _change(self, action: Action, job_id: str, *, reason: str = "", priority: int = 0) -> JobView:
        await store_commands(self.store).change_one(action, job_id, reason=reason, priority=priority)
        return await self.get(job_id)

    async def change(
        self,
        action: Action,
        *,
        ids: Sequence[str] | None = None,
        where: JobFilter | None = None,
        reason: str = "",
        priority: int | None = None,
    ) -> BulkResponse:
        """Change many jobs: by id, or all that match. It is done in short transactions, so that others can work."""
        return await self._change_many(action, ids, where, reason=reason, priority=priority or 0)

    async def redrive(self, *, ids: Sequence[str] | None = None, where: JobFilter | None = None) -> BulkResponse:
        """Retry dead letters."""
        return await self._change_many(Action.RETRY, ids, where, DEAD)

    async def _change_many(
        self,
        action: Action,
        ids: Sequence[str] | None,
        where: JobFilter | None,
        states: tuple[State, ...] = (),
        *,
        reason: str = "",
        priority: int = 0,
    ) -> BulkResponse:
        commands = store_commands(self.store)
        if (ids is None) == (where is None):
            raise BadOption("Give either ids or where.", option="ids")
        if ids is None:
            if where == JobFilter() and not states:
                raise BadOption("where needs at least one condition. To select every job, list all states.")
            changed = unchanged = 0
            async for batch in commands.change_matching(
                action, filter_of(where, states), reason=reason, priority=priority
            ):
                changed, unchanged = changed + len(batch.changed), unchanged + len(batch.unchanged)
            return BulkResponse(changed=changed, unchanged=unchanged)
        found = {job.id: job.state async for job in Queries(self.store).walk(Filter(ids=tuple(ids)))}
        matching = [job_id for job_id in ids if job_id in found and (not states or found[job_id] in states)]
        done = await commands.change(action, matching, reason=reason, priority=priority)
        others = tuple(job_id for job_id in ids if job_id in found and job_id not in done.changed)
        missing = tuple(job_id for job_id in ids if job_id not in found)
        return BulkResponse(
            changed=len(done.changed),
            unchanged=len(others),
            not_found=len(missing),
            changed_ids=done.changed,
            unchanged_ids=others,
            not_found_ids=missing,
        )
