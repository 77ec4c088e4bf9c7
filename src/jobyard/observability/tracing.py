"""Spans by OpenTelemetry from enqueue to handler; the trace travels with the job as a reserved tag.

A lease carries no tags, so a traced worker asks the store once for the jobs that start in the same moment; whoever does
not trace pays nothing. Names follow OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jobyard.domain.job import NewJob
from jobyard.domain.outcome import Failed, Outcome, TimedOut
from jobyard.domain.tags import TRACE
from jobyard.ports.admin_store import Filter
from jobyard.ports.executor import Attempt, Executor
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.tracing")

SYSTEM = "jobyard"
AT_ONCE = 200
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """`as_link`: a handler's span begins a trace of its own that points to the enqueue, instead of continuing it."""

    def __init__(self, provider: TracerProvider | None = None, *, as_link: bool = False) -> None:
        self.tracer = trace.get_tracer("jobyard", tracer_provider=provider)
        self.as_link = as_link

    def store(self, store: Store) -> Store:
        return store if isinstance(store, TracedStore) else cast(Store, TracedStore(store, self))

    def executor(self, executor: Executor, store: Store) -> Executor:
        return TracedExecutor(executor, store, self)


class TracedStore:
    """A store whose inserts are spans; everything else is as it was."""

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def for_event_loop(self) -> Store:
        return self._tracing.store(self._store.for_event_loop())

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if len(jobs) == 1:
            [job] = jobs
            with self._span("send", job.queue, job) as span:
                answers = await self._store.insert([with_trace(job, span)], transaction)
                span.set_attribute("jobyard.created", answers[0].created)
                return answers
        made = [self._create(job) for job in jobs]
        queues = {job.queue for job in jobs}
        name = queues.pop() if len(queues) == 1 else "several queues"
        with self._span("send", name, links=[Link(span.get_span_context()) for _, span in made]) as span:
            span.set_attribute("messaging.batch.message_count", len(jobs))
            return await self._store.insert([job for job, _ in made], transaction)

    def _create(self, job: NewJob) -> tuple[NewJob, Span]:
        with self._span("create", job.queue, job) as span:
            return with_trace(job, span), span

    def _span(self, operation: str, queue: str, job: NewJob | None = None, links: Sequence[Link] = ()) -> Any:
        facts = attributes(operation, queue)
        if job is not None:
            facts |= {"messaging.message.id": job.id, "jobyard.kind": job.kind}
        return self._tracing.tracer.start_as_current_span(
            f"{operation} {queue}", kind=SpanKind.PRODUCER, attributes=facts, links=links
        )


class TracedExecutor:
    """An executor whose attempts are spans, in the trace of whoever handed the job in."""

    def __init__(self, executor: Executor, store: Store, tracing: Tracing) -> None:
        self._executor = executor
        self._origins = Origins(store)
        self._tracing = tracing

    async def perform(self, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        origin = await self._origins.of(lease.job_id)
        caller = trace.get_current_span(origin).get_span_context() if origin is not None else None
        is_link = self._tracing.as_link and caller is not None
        with self._tracing.tracer.start_as_current_span(
            f"process {lease.queue}",
            context=Context() if is_link or origin is None else origin,
            kind=SpanKind.CONSUMER,
            links=[Link(caller)] if is_link and caller is not None else (),
            attributes={
                **attributes("process", lease.queue),
                "messaging.message.id": lease.job_id,
                "jobyard.kind": lease.kind,
                "jobyard.attempt": lease.attempt,
            },
        ) as span:
            outcome = await self._executor.perform(attempt)
            tell(span, outcome)
            return outcome


class Origins:
    """Where jobs come from; those that start together are asked for together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: dict[str, asyncio.Future[Context | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def of(self, job_id: str) -> Context | None:
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._look)
        future = self._asked.setdefault(job_id, loop.create_future())
        return await asyncio.shield(future)

    def _look(self) -> None:
        asked, self._asked = self._asked, {}
        task = asyncio.get_running_loop().create_task(self._find(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find(self, asked: dict[str, asyncio.Future[Context | None]]) -> None:
        found: dict[str, Context | None] = {}
        try:
            ids = list(asked)
            for start in range(0, len(ids), AT_ONCE):
                found |= await self._some(tuple(ids[start : start + AT_ONCE]))
        except Exception:
            # Whoever only looks on must not be able to stop the work.
            log.debug("the traces of %d jobs could not be read", len(asked), exc_info=True)
        for job_id, future in asked.items():
            if not future.done():
                future.set_result(found.get(job_id))

    async def _some(self, ids: tuple[str, ...]) -> dict[str, Context | None]:
        found: dict[str, Context | None] = {}
        cursor: str | None = None
        while True:
            page = await self._store.find(Filter(ids=ids), len(ids), cursor)
            found.update((job.id, origin_of(job.tags)) for job in page.jobs)
            cursor = page.cursor
            if cursor is None:
                return found


def attributes(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def with_trace(job: NewJob, span: Span) -> NewJob:
    """The job, carrying the span's context; as it was when nobody records or it already carries one."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span))
    parent = carrier.get("traceparent")
    if parent is None or origin_of(job.tags) is not None:
        return job
    return msgspec.structs.replace(job, tags=(*job.tags, TRACE + parent))


def origin_of(tags: Sequence[str]) -> Context | None:
    for tag in tags:
        if tag.startswith(TRACE):
            context = _propagator.extract({"traceparent": tag.removeprefix(TRACE)}, Context())
            if trace.get_current_span(context).get_span_context().is_valid:
                return context
    return None


def tell(span: Span, outcome: Outcome) -> None:
    span.set_attribute("jobyard.outcome", type(outcome).__name__.lower())
    match outcome:
        case Failed(message=message, type=kind):
            span.set_status(Status(StatusCode.ERROR, message))
            span.set_attribute("error.type", kind or "failed")
        case TimedOut(message):
            span.set_status(Status(StatusCode.ERROR, message))
            span.set_attribute("error.type", "timeout")
