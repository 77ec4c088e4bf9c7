"""The handle of a job: wait for its result, inspect it, change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from jobyard.api.schemas.jobs import ExplanationView, JobView
from jobyard.domain.job_options import Seconds, seconds_of
from jobyard.executors.python.prepared_job import ResultDecoder
from jobyard.operations.local import store_commands
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Action

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

R_co = TypeVar("R_co", covariant=True)


class JobHandle(Generic[R_co]):
    """A job in the store, as `enqueue` and `yard.job_handle(id)` return it.

    `created` is False if a unique key was held: `id` is then the id of the job that holds it.
    """

    def __init__(
        self, yard: Jobyard, job_id: str, handler: ResultDecoder | None = None, *, created: bool = False
    ) -> None:
        self._yard = yard
        self._handler = handler
        self.id = job_id
        self.created = created

    async def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the handler's result.

        Raises JobFailed, JobTimedOut or JobCancelled if the job ended without one, and ResultNotReady if it did not
        end within the timeout.
        """
        data = await Queries(self._yard.store).result(self.id, seconds_of(timeout))
        result: R_co = msgspec.json.decode(data) if self._handler is None else self._handler.decode_result(data)
        return result

    async def wait(self, timeout: Seconds | None = None) -> JobView:
        """Wait until the job is final, however it ended. Raises ResultNotReady."""
        return await self._yard.end(self.id, timeout)

    async def info(self) -> JobView:
        """The job as it is now: state, attempts, errors, progress, log. Raises JobNotFound."""
        return await self._yard.get(self.id)

    async def explain(self) -> ExplanationView:
        """Why the job is waiting."""
        return await self._yard.explain(self.id)

    async def cancel(self, reason: str = "") -> None:
        """Cancel the job; a running attempt is asked to stop. Raises NotPossible if the job is final."""
        await self._change(Action.CANCEL, reason=reason)

    async def retry(self) -> None:
        """Run the job again. Raises NotPossible unless it failed or was cancelled."""
        await self._change(Action.RETRY)

    async def delete(self) -> None:
        """Remove the job from the store. Raises NotPossible while it is running."""
        await self._change(Action.DELETE)

    async def run_now(self) -> None:
        """Make the job due if it waits for its time. Raises NotPossible if it is not delayed."""
        await self._change(Action.RUN_NOW)

    async def prioritise(self, priority: int) -> None:
        """Change the priority of the job while it waits."""
        await self._change(Action.PRIORITISE, priority=priority)

    async def signal(self, name: str, data: Any = None, *, signal_id: str | None = None) -> bool:
        """Wake the job if it waits for this signal, else keep the signal until it does. True: it woke.

        Signals of a name are received in the order of arrival; one with a `signal_id` that the job has is ignored.
        """
        return await self._yard.signal(self.id, name, data, signal_id=signal_id)

    async def _change(self, action: Action, *, reason: str = "", priority: int = 0) -> None:
        await store_commands(self._yard.store).change_one(action, self.id, reason=reason, priority=priority)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"
