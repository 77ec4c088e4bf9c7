"""One trace from enqueue to handler, also across processes; the reserved tag is never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.server.support import ApiServer
from tests.support import Watched, eventually

from jobyard import BlockingContext, Context, Jobyard
from jobyard.app.declarations import declarations_of
from jobyard.app.tracing import make_exporter
from jobyard.domain.job import NewJob
from jobyard.domain.tags import TRACE
from jobyard.errors import ConfigurationError, JobFailed, StoreUnavailable
from jobyard.observability.tracing import Tracing, origin_of
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter
from jobyard.ports.clock import SystemClock
from jobyard.server.dependencies import OpenAccess
from jobyard.server.routes import submit as submitting
from jobyard.server.tracing import TracingMiddleware
from jobyard.stores.memory import MemoryStore

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.of(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


def declare(yard: Jobyard, seen: list[Any]) -> None:
    @yard.job(queue="builds", max_attempts=1)
    async def build(ctx: Context) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    @yard.job(queue="builds", max_attempts=1)
    def blocking(ctx: BlockingContext) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    @yard.job(queue="builds", max_attempts=1)
    async def bad(ctx: Context) -> None:
        raise ValueError("no such branch")


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
async def yard(spans: Spans, seen: list[Any], tmp_path: Path) -> AsyncIterator[Jobyard]:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    yard.trace(spans.provider)
    declare(yard, seen)
    async with yard:
        yield yard


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


@pytest.mark.parametrize("kind", ["build", "blocking"])
async def test_the_handler_runs_in_the_trace_of_the_enqueue(
    yard: Jobyard, spans: Spans, seen: list[Any], kind: str
) -> None:
    handle = await yard.enqueue(kind)
    async with yard.worker():
        await handle.result(60)
    send, process = spans.one("send builds"), spans.one("process builds")
    assert process.parent is not None
    assert send.context is not None
    assert process.parent.span_id == send.context.span_id
    assert seen == [trace_id(send)] == [trace_id(process)]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert process.attributes is not None
    for span, operation in ((send.attributes, "send"), (process.attributes, "process")):
        assert span["messaging.system"] == "jobyard"
        assert span["messaging.destination.name"] == "builds"
        assert span["messaging.operation.name"] == operation
        assert span["messaging.message.id"] == handle.id
    assert process.attributes["jobyard.outcome"] == "done"


async def test_a_worker_elsewhere_goes_on_with_the_trace(
    yard: Jobyard, spans: Spans, seen: list[Any], tmp_path: Path
) -> None:
    handle = await yard.enqueue("build")
    there, other = Spans(), Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    other.trace(there.provider)
    declare(other, seen)
    async with other, other.worker():
        await handle.result(60)
    assert trace_id(there.one("process builds")) == trace_id(spans.one("send builds"))


async def test_a_batch_has_a_span_for_each_job(yard: Jobyard, spans: Spans) -> None:
    handles = await yard.enqueue_many(*(declarations_of(yard).tasks["build"].call() for _ in range(3)))
    async with yard.worker():
        for handle in handles:
            await handle.result(60)
    created, send = spans.of("create builds"), spans.one("send builds")
    assert len(created) == 3
    assert {link.context.span_id for link in send.links} == {span.context.span_id for span in created if span.context}
    parents = {span.parent.span_id for span in spans.of("process builds") if span.parent}
    assert parents == {span.context.span_id for span in created if span.context}


async def test_a_failure_is_an_error(yard: Jobyard, spans: Spans) -> None:
    handle = await yard.enqueue("bad")
    async with yard.worker():
        with pytest.raises(JobFailed):
            await handle.result(60)
    span = spans.one("process builds")
    assert span.status.status_code is StatusCode.ERROR
    assert "no such branch" in (span.status.description or "")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"


async def test_with_links_the_handler_has_a_trace_of_its_own(spans: Spans, seen: list[Any]) -> None:
    yard = Jobyard("memory://")
    yard.trace(spans.provider, as_link=True)
    declare(yard, seen)
    async with yard, yard.worker():
        await (await yard.enqueue("build")).result(60)
    send, process = spans.one("send builds"), spans.one("process builds")
    assert trace_id(send) != trace_id(process)
    assert process.parent is None
    assert [link.context.trace_id for link in process.links] == [trace_id(send)]


async def test_people_do_not_see_it(yard: Jobyard) -> None:
    handle = await yard.enqueue("build", tags=["nightly"])
    [stored] = (await yard.store.find(Filter())).jobs
    assert origin_of(stored.tags) is not None
    assert (await yard.get(handle.id)).tags == ("nightly",)


async def test_without_tracing_a_job_carries_nothing() -> None:
    yard = Jobyard("memory://")
    declare(yard, [])
    async with yard:
        job = await yard.get((await yard.enqueue("build")).id)
        assert not any(tag.startswith(TRACE) for tag in job.tags)


async def test_a_job_without_a_trace_begins_one(spans: Spans, seen: list[Any]) -> None:
    yard = Jobyard("memory://")
    declare(yard, seen)
    async with yard:
        handle = await yard.enqueue("build")
        await yard.store.insert([NewJob(id="odd", kind="build", queue="builds", tags=(f"{TRACE}nonsense",))])
        yard.trace(spans.provider)
        async with yard.worker():
            await handle.result(60)
            await Queries(yard.store).result("odd", 60)
    assert [span.parent for span in spans.of("process builds")] == [None, None]


async def test_jobs_that_start_together_are_looked_up_in_one_call(spans: Spans) -> None:
    store = Watched(MemoryStore(SystemClock()))
    yard = Jobyard(store=store.as_store())
    declare(yard, [])
    yard.trace(spans.provider)
    async with yard:
        handles = await yard.enqueue_many(*(declarations_of(yard).tasks["build"].call() for _ in range(40)))
        async with yard.worker(concurrency=50):
            for handle in handles:
                await handle.result(60)
    assert store.calls["find"] <= 3


async def test_a_failed_trace_lookup_does_not_stop_the_job(spans: Spans) -> None:
    store = Watched(MemoryStore(SystemClock()))
    yard = Jobyard(store=store.as_store())
    declare(yard, [])
    yard.trace(spans.provider)
    async with yard:
        handle = await yard.enqueue("build")
        store.failing, store.failing_verbs = StoreUnavailable("gone"), ("find",)
        async with yard.worker():
            await handle.result(60)
    assert spans.one("process builds").parent is None


async def test_over_http_the_callers_trace_reaches_the_handler(spans: Spans, seen: list[Any]) -> None:
    tracing = Tracing(spans.provider)
    yard = Jobyard("memory://")
    yard.trace(spans.provider)
    declare(yard, seen)
    api = ApiServer(yard.store, [submitting.ROUTES], authenticator=OpenAccess())
    api.app = TracingMiddleware(api.app, tracing)  # type: ignore[assignment]  # any application will do
    async with yard, api.client() as client, yard.worker():
        body = {"kind": "build", "queue": "builds"}
        made = await client.post("/v1/jobs", json=body, headers={"traceparent": CALLER})
        assert made.status_code == 202
        await Queries(yard.store).result(made.json()["id"], 10)
        await eventually(lambda: spans.of("process builds"))
        refused = await client.post("/v1/jobs", json={}, headers={"traceparent": CALLER})
        assert refused.json()["trace_id"] == CALLER.split("-")[1], "to be found in the logs"
    request, _ = spans.of("POST /v1/jobs")
    send, process = spans.one("send builds"), spans.one("process builds")
    assert {trace_id(span) for span in (request, send, process)} == {int(CALLER.split("-")[1], 16)}
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
    assert request.kind is SpanKind.SERVER
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 202


def test_an_exporter_is_chosen_by_name() -> None:
    assert make_exporter("none") is None
    assert type(make_exporter("console")).__name__ == "ConsoleSpanExporter"
    with pytest.raises(ConfigurationError, match="otlp, console or none"):
        make_exporter("smoke-signals")


async def test_many_traces_do_not_mix(yard: Jobyard, spans: Spans, seen: list[Any]) -> None:
    handles = await asyncio.gather(*(yard.enqueue("build") for _ in range(20)))
    async with yard.worker(concurrency=10):
        for handle in handles:
            await handle.result(60)
    sent = {
        span.attributes["messaging.message.id"]: trace_id(span) for span in spans.of("send builds") if span.attributes
    }
    done = {
        span.attributes["messaging.message.id"]: trace_id(span)
        for span in spans.of("process builds")
        if span.attributes
    }
    assert sent == done
    assert len(set(sent.values())) == 20
