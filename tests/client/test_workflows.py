"""Workflow files through the client and through `Operations`, local and remote; their steps live."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.client.support import Site
from tests.support import eventually

from jobyard import Context
from jobyard.client import Client, CloudEvent
from jobyard.client.operations import RemoteOperations
from jobyard.domain.job import State
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.step_state import StepStatus
from jobyard.errors import BadOption, JobNotFound, UnknownWorkflow
from jobyard.operations.local import LocalOperations
from jobyard.operations.protocol import Operations
from jobyard.operations.workflow_catalog import WorkflowCatalog

MAILING = {
    "id": "mailing",
    "params": {"to": {"type": "array"}},
    "steps": [
        {"id": "all", "kind": "send", "for_each": "${params.to}", "at_most": 1, "input": {"to": "${item}"}},
        {"id": "last", "kind": "send", "needs": ["all"], "input": {"to": "me", "copies": 2}},
    ],
    "output": "${steps.last.output.copies}",
}


@pytest.fixture
def catalog(here: Site) -> WorkflowCatalog:
    made = WorkflowCatalog({"mailing": parse_workflow(json.dumps(MAILING))}, ["mail"])
    here.api.dependencies.workflows = made
    return made


async def test_the_verbs(here: Site, client: Client, catalog: WorkflowCatalog) -> None:
    [view] = await client.workflows()
    assert (view.id, [step.id for step in view.steps]) == ("mailing", ["all", "last"])
    job_id = await client.run_workflow("mailing", {"to": ["a", "b"]}, platform="mail", priority=3)
    assert (await client.workflow_run(job_id)).state is State.PENDING
    async with here.yard.worker():
        assert await client.result(job_id, 60) == 2
    run = await client.workflow_run(job_id)
    assert (run.output, run.platform, run.priority) == (2, "mail", 3)
    assert [step.status for step in run.steps] == [StepStatus.COMPLETED] * 2
    recorded = [each async for each in client.history(job_id, with_results=True)]
    assert [(each.kind, each.name) for each in recorded] == [
        ("started", ""), ("item", "send"), ("item", "send"), ("for_each", "send"), ("step", "send")
    ]  # fmt: skip
    assert recorded[-1].result == {"to": "me", "copies": 2}
    other = await client.run_workflow("mailing", {"to": []})
    assert (await client.cancel_workflow(other, "enough")).state is State.CANCELLED


async def test_errors_of_the_envelope_are_exceptions(client: Client, catalog: WorkflowCatalog) -> None:
    with pytest.raises(UnknownWorkflow, match='Did you mean "mailing"'):
        await client.run_workflow("mailings")
    with pytest.raises(BadOption, match=r"params\.to must be a list") as caught:
        await client.run_workflow("mailing", {"to": 5, "form": "me"})
    [other] = caught.value.others
    assert str(other).startswith("params.form ")
    with pytest.raises(JobNotFound):
        await client.workflow_run("absent")


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_operations_say_the_same(here: Site, client: Client, catalog: WorkflowCatalog, kind: str) -> None:
    local: Operations = LocalOperations(here.yard.store, make_workflows=lambda: catalog)
    operations = local if kind == "local" else RemoteOperations(client)
    assert [each.id for each in await operations.workflows()] == ["mailing"]
    job_id = await operations.run_workflow("mailing", {"to": ["a"]})
    async with here.yard.worker():
        await operations.end(job_id, 60)
    assert (await operations.workflow_run(job_id)).output == 2
    assert len([each async for each in operations.history(job_id)]) == 4
    assert await operations.signal((await client.enqueue("send", {"to": "x"})).id, "go", signal_id="1") is False


async def listen(client: Client, job_id: str, events: list[CloudEvent]) -> None:
    async for event in client.job_events(job_id):
        events.append(event)  # noqa: PERF401  # one by one, as they come


async def test_steps_are_seen_live(here: Site, client: Client) -> None:
    """Each change of a step is an event of its job, with the states of all steps."""
    gates = {name: asyncio.Event() for name in ("a", "b")}

    @here.yard.job
    async def gate(ctx: Context, name: str) -> None:
        await ctx.progress(50, "half")
        await gates[name].wait()

    steps = [
        {"id": "a", "kind": "gate", "input": {"name": "a"}},
        {"id": "b", "kind": "gate", "input": {"name": "b"}, "needs": ["a"]},
    ]
    text = json.dumps({"id": "gates", "steps": steps})
    here.api.dependencies.workflows = WorkflowCatalog({"gates": parse_workflow(text)})
    job_id = await client.run_workflow("gates")
    events: list[CloudEvent] = []

    def reported(percent: float, states: dict[str, str]) -> bool:
        """Whether an event had this progress and these states."""
        found = [event.data["progress"] for event in events if event.type == "io.jobyard.job.progress.v1"]
        return any((each["percent"], each["data"]["steps"]) == (percent, states) for each in found)

    listening = asyncio.ensure_future(listen(client, job_id, events))
    await eventually(lambda: events)
    async with here.yard.worker():
        await eventually(lambda: reported(25, {"a": "running"}))
        run = await client.workflow_run(job_id)
        assert [(step.status, step.percent, step.message) for step in run.steps] == [
            (StepStatus.RUNNING, 50, "half"), (StepStatus.PENDING, None, "")
        ]  # fmt: skip
        gates["a"].set()
        await eventually(lambda: reported(75, {"a": "completed", "b": "running"}))
        gates["b"].set()
        await eventually(lambda: reported(100, {"a": "completed", "b": "completed"}))
        await eventually(lambda: events[-1].type == "io.jobyard.job.completed.v1")
    listening.cancel()
    job = await client.get(job_id)
    assert [(step.name, step.status, step.data) for step in job.steps] == [
        ("a", "passed", {"kind": "gate"}), ("b", "passed", {"kind": "gate"})
    ]  # fmt: skip
