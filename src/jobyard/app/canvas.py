"""Chains, groups, chords and batches: compositions of jobs without a workflow function of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jobyard.app.declarations import declarations_of
from jobyard.app.handle import JobHandle
from jobyard.app.task import BoundTask
from jobyard.domain.ids import new_id
from jobyard.domain.job import Parent
from jobyard.domain.job_options import DEFAULTS, with_options
from jobyard.errors import BadInput, BadOption, NotPossible
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.builtin import BATCH, CANVAS, CLOSED, BatchCounts
from jobyard.executors.workflow.job_spec import JobSpec
from jobyard.executors.workflow.records import BATCH_KEY, child_id, map_scope
from jobyard.executors.workflow.relay import cancel_unfinished

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

# Jobs inserted in one call.
CHUNK = 1000
Link = PreparedJob[Any] | BoundTask[..., Any]


def prepare(yard: Jobyard, kind: str, payload: dict[str, Any], options: dict[str, Any]) -> PreparedJob[Any]:
    """A job of one of the workflows that every worker knows."""
    declarations = declarations_of(yard)
    handler = declarations.handlers.get(kind)
    checked = with_options(DEFAULTS, options)
    return PreparedJob(handler, declarations.job_factory.build(kind, handler, payload, checked), checked.transaction)


def prepare_chain(yard: Jobyard, links: Sequence[Link], options: dict[str, Any]) -> PreparedJob[Any]:
    if not links:
        raise BadInput("Cannot make a chain of nothing. Pass task.call(…) and then tasks.")
    return prepare(yard, CANVAS, {"jobs": [spec_of(link) for link in links], "how": "chain"}, options)


def prepare_group(yard: Jobyard, jobs: Iterable[Link], options: dict[str, Any]) -> PreparedJob[list[Any]]:
    return prepare(yard, CANVAS, {"jobs": [spec_of(job) for job in jobs], "how": "group"}, options)


def prepare_chord(yard: Jobyard, jobs: Iterable[Link], body: Link, options: dict[str, Any]) -> PreparedJob[Any]:
    payload = {"jobs": [spec_of(job) for job in jobs], "how": "chord", "body": spec_of(body)}
    return prepare(yard, CANVAS, payload, options)


def spec_of(link: Link) -> JobSpec:
    """A prepared job as it is; a task receives what comes before it as its first argument."""
    if isinstance(link, PreparedJob):
        if link.transaction is not None:
            raise BadOption("A job of a chain, group or chord cannot have a transaction.", option="transaction")
        return JobSpec.of(link.new_job)
    if not isinstance(link, BoundTask):
        raise BadInput(f"Cannot use {link!r} here. Pass task.call(…), or a task that takes one argument.")
    names = link.handler.names
    if not names:
        raise BadInput(f"{link.handler.name} takes no argument, so it cannot receive a result. Pass task.call().")
    job = link.defaults.new_job(new_id(), link.handler.name, b"{}")
    return JobSpec.of(msgspec.structs.replace(job, is_workflow=link.handler.is_workflow), names[0])


class Batch:
    """Jobs with one callback when all have ended: `async with yard.batch(notify) as batch: await batch.add(…)`.

    It is closed at the end of the block; `add` is not possible afterwards.
    """

    def __init__(self, yard: Jobyard, callback: Link | None, when: Literal["ended", "completed"], options: Any) -> None:
        if when not in ("ended", "completed"):
            raise BadOption(f'when must be "ended" or "completed", not {when!r}.', option="when")
        self._yard = yard
        payload = {"callback": None if callback is None else spec_of(callback), "when": when}
        self._job = prepare(yard, BATCH, payload, options)
        self._count = 0
        self._is_open = False
        self.id = self._job.new_job.id

    @property
    def handle(self) -> JobHandle[BatchCounts]:
        """The batch itself as a job: its result is the counts, its progress the share of ended jobs."""
        return JobHandle(self._yard, self.id, self._job.handler)

    async def __aenter__(self) -> Batch:
        await self._yard.enqueue_many(self._job)
        self._is_open = True
        return self

    async def add(self, *jobs: PreparedJob[Any]) -> list[str]:
        """Insert jobs and return their ids."""
        if not self._is_open:
            raise NotPossible(f"Cannot add jobs to batch {self.id}: it is not open. Use it inside `async with`.")
        scope, first = map_scope(1, BATCH_KEY), self._count
        children = [
            msgspec.structs.replace(
                job.new_job,
                id=child_id(self.id, 1, BATCH_KEY, index),
                parent=Parent(self.id, scope, str(index)),
            )
            for index, job in enumerate(jobs, start=first)
        ]
        for at in range(0, len(children), CHUNK):
            inserted = await self._yard.store.insert(children[at : at + CHUNK])
            held = [each.id for each, job in zip(inserted, children[at:], strict=False) if each.id != job.id]
            self._count += len(inserted)
            if held:
                raise BadInput(f"Cannot add to a batch a job whose unique key is held by job {held[0]}.")
        await self._require_running([job.id for job in children])
        return [job.id for job in children]

    async def _require_running(self, added: list[str]) -> None:
        """Raise if the batch was cancelled, or was open for too long: it would not notice jobs that are added now."""
        job = await self._yard.store.get(self.id)
        if job is None or job.state.is_final or job.cancel_requested is not None:
            self._is_open = False
            await cancel_unfinished(self._yard.store, tuple(added), f"its batch {self.id} has ended")
            raise NotPossible(f"Cannot add jobs to batch {self.id}: it was cancelled or has failed.")

    async def close(self) -> None:
        """No more jobs: the callback runs when all have ended. Safe twice."""
        if self._is_open:
            self._is_open = False
            await self._yard.signal(self.id, CLOSED, self._count, signal_id=CLOSED)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self._is_open = False
            await self.handle.cancel("the block that added its jobs failed")
