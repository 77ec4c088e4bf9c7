"""OpenTelemetry spans from enqueue to handler; the trace context travels with the job as a reserved tag.

A lease carries no tags, so a traced worker reads the jobs that start together from the store in one call; without
tracing this costs nothing. Names follow OpenTelemetry's messaging conventions.
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
BATCH = 200
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """With `as_link`, a handler's span starts its own trace that links to the enqueue, instead of continuing it."""

    def __init__(self, provider: TracerProvider | None = None, *, as_link: bool = False) -> None:
        self.tracer = trace.get_tracer("jobyard", tracer_provider=provider)
        self.as_link = as_link

    def store(self, store: Store) -> Store:
        return store if isinstance(store, TracedStore) else cast(Store, TracedStore(store, self))

    def executor(self, executor: Executor, store: Store) -> Executor:
        return TracedExecutor(executor, store, self)


class TracedStore:
    """A store whose inserts are spans."""

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
                inserted = await self._store.insert([with_trace(job, span)], transaction)
                span.set_attribute("jobyard.created", inserted[0].created)
                return inserted
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
        fields = attributes(operation, queue)
        if job is not None:
            fields |= {"messaging.message.id": job.id, "jobyard.kind": job.kind}
        return self._tracing.tracer.start_as_current_span(
            f"{operation} {queue}", kind=SpanKind.PRODUCER, attributes=fields, links=links
        )


class TracedExecutor:
    """An executor whose attempts are spans, in the trace of the enqueue."""

    def __init__(self, executor: Executor, store: Store, tracing: Tracing) -> None:
        self._executor = executor
        self._traces = TraceLookup(store)
        self._tracing = tracing

    async def perform(self, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        origin = await self._traces.of(lease.job_id)
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
            record_outcome(span, outcome)
            return outcome


class TraceLookup:
    """The trace contexts of jobs; jobs that start together are read together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Future[Context | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def of(self, job_id: str) -> Context | None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._start_lookup)
        future = self._waiting.setdefault(job_id, loop.create_future())
        return await asyncio.shield(future)

    def _start_lookup(self) -> None:
        waiting, self._waiting = self._waiting, {}
        task = asyncio.get_running_loop().create_task(self._resolve(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, waiting: dict[str, asyncio.Future[Context | None]]) -> None:
        found: dict[str, Context | None] = {}
        try:
            ids = list(waiting)
            for start in range(0, len(ids), BATCH):
                found |= await self._read(tuple(ids[start : start + BATCH]))
        except Exception:
            # Tracing must not stop the work.
            log.debug("the traces of %d jobs could not be read", len(waiting), exc_info=True)
        for job_id, future in waiting.items():
            if not future.done():
                future.set_result(found.get(job_id))

    async def _read(self, ids: tuple[str, ...]) -> dict[str, Context | None]:
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
    """The job with the span's context, unless the span is not recorded or the job already carries one."""
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


def record_outcome(span: Span, outcome: Outcome) -> None:
    span.set_attribute("jobyard.outcome", type(outcome).__name__.lower())
    match outcome:
        case Failed(message=message, type=kind):
            span.set_status(Status(StatusCode.ERROR, message))
            span.set_attribute("error.type", kind or "failed")
        case TimedOut(message):
            span.set_status(Status(StatusCode.ERROR, message))
            span.set_attribute("error.type", "timeout")
