"""What a run does next: examples of each rule, and random runs that must all end well-behaved."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.workflow_files.support import SCAN, Document, parsed

from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.params import check_params
from jobyard.domain.workflow_files.scheduler import (
    NextSteps,
    RunInfo,
    RunScheduler,
    WorkflowCompleted,
    WorkflowFailed,
    items_state,
)
from jobyard.domain.workflow_files.step_state import RUNNING, StepState, StepStatus, completed, failed, skipped
from jobyard.errors import ExpressionError

RUN = RunInfo(id="job-1", started_at=0, platform="ably")


def workflow(*steps: Document, **words: Any) -> WorkflowDefinition:
    more = [{"kind": "k", **step} for step in words.pop("on_failure", ())]
    return parsed({"id": "w", "steps": [{"kind": "k", **step} for step in steps], "on_failure": more, **words})


def scheduler(
    definition: WorkflowDefinition, params: Any = None, states: Mapping[str, StepState] | None = None
) -> RunScheduler:
    return RunScheduler(definition, check_params(definition, params or {}), RUN, states)


def ready(news: NextSteps) -> list[str]:
    return [step.id for step in news.ready]


def settled(news: NextSteps) -> dict[str, str]:
    return {name: str(state.status) for name, state in news.settled.items()}


def test_a_step_starts_when_all_its_needs_have_ended() -> None:
    diamond = workflow(
        {"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c", "needs": ["a"]}, {"id": "d", "needs": ["c", "b"]}
    )
    run = scheduler(diamond)
    assert ready(run.next()) == ["a"]
    assert ready(run.next()) == []  # handed out once
    run.settle("a", completed())
    assert ready(run.next()) == ["b", "c"]
    run.settle("c", completed())
    assert ready(run.next()) == []
    run.settle("b", completed())
    assert ready(run.next()) == ["d"]
    run.settle("d", completed())
    assert run.next().end == WorkflowCompleted(None)


def test_steps_that_are_ready_together_start_in_the_order_of_the_file() -> None:
    run = scheduler(workflow({"id": "x", "needs": ["b"]}, {"id": "y", "needs": ["a"]}, {"id": "a"}, {"id": "b"}))
    assert ready(run.next()) == ["a", "b"]
    run.settle("a", completed())
    run.settle("b", completed())
    assert ready(run.next()) == ["x", "y"]


def test_inputs_and_output_refer_to_params_steps_and_the_run() -> None:
    run = scheduler(parsed(SCAN), {"platform": "ably", "limit": 5})
    [extract] = run.next().ready
    assert extract.input() == {"n": 5}
    run.settle("extract", completed({"urls": ["u", "${params.limit}"]}))
    [scan] = run.next().ready
    assert scan.items == ["u", "${params.limit}"]
    assert [scan.input(index) for index in range(2)] == [
        {"url": "u", "label": "page 0 of job-1"},
        {"url": "${params.limit}", "label": "page 1 of job-1"},
    ]
    run.settle("scan", items_state(scan.step, [completed(1), failed("gone")]))
    [store] = run.next().ready
    assert store.input() == {"rows": [1, {"error": "gone"}]}
    run.settle("store", completed(2))
    assert run.next().end == WorkflowCompleted({"stored": 2, "platform": "ably"})


def test_a_false_condition_skips_the_step_and_what_needs_it() -> None:
    run = scheduler(
        workflow(
            {"id": "a", "when": "false"},
            {"id": "b", "needs": ["a"]},
            {"id": "c", "needs": ["b"], "when": "true"},  # says nothing about b
            {"id": "d"},
        )
    )
    news = run.next()
    assert settled(news) == {"a": "skipped", "b": "skipped", "c": "skipped"}
    assert news.settled["a"].reason == "The condition is false: false"
    assert news.settled["b"].reason == "Step a was skipped."
    assert ready(news) == ["d"]


def test_a_condition_that_refers_to_the_skipped_step_decides() -> None:
    def steps(condition: str) -> list[str]:
        return ready(
            scheduler(workflow({"id": "a", "when": "false"}, {"id": "b", "needs": ["a"], "when": condition})).next()
        )

    assert steps("steps.a.status == 'skipped'") == ["b"]
    assert steps("steps.a.status == 'completed'") == []
    assert steps("not exists(steps.a.output)") == ["b"]


def test_the_output_of_a_skipped_step_is_missing() -> None:
    definition = workflow(
        {"id": "a", "when": "false"},
        {
            "id": "b",
            "needs": ["a"],
            "when": "steps.a.status == 'skipped'",
            "input": {"x": "${steps.a.output.n ?? 0}"},
        },
        {"id": "c", "needs": ["b"], "input": {"x": "${steps.a.output}"}},
    )
    run = scheduler(definition)
    [b] = run.next().ready
    assert b.input() == {"x": 0}
    run.settle("b", completed())
    news = run.next()
    assert settled(news) == {"c": "failed"}
    assert isinstance(news.end, WorkflowFailed) and "steps.a.output is missing: step a is skipped" in news.end.reason


def test_after_a_failure_nothing_starts_and_the_run_fails_when_running_steps_have_ended() -> None:
    run = scheduler(
        workflow(
            {"id": "a"},
            {"id": "b"},
            {"id": "c", "needs": ["b"]},
            on_failure=[{"id": "tell", "input": {"text": "${failure.step}: ${failure.error}"}}],
        )
    )
    assert ready(run.next()) == ["a", "b"]
    run.settle("a", failed("no route"))
    news = run.next()
    assert (ready(news), settled(news), news.end) == ([], {"c": "skipped"}, None)
    assert news.settled["c"].reason == "Step a failed."
    run.settle("b", completed())
    [tell] = run.next().ready
    assert tell.input() == {"text": "a: no route"}
    run.settle("tell", completed())
    assert run.next().end == WorkflowFailed("a", "no route")


def test_without_a_failure_no_on_failure_step_runs() -> None:
    run = scheduler(workflow({"id": "a"}, on_failure=[{"id": "tell"}]))
    run.next()
    run.settle("a", completed())
    assert run.next().end == WorkflowCompleted(None)
    assert run.states["tell"].status is StepStatus.PENDING


def test_a_failed_on_failure_step_stops_only_those_that_need_it() -> None:
    run = scheduler(
        workflow(
            {"id": "a"},
            {"id": "b", "needs": ["a"]},
            on_failure=[
                {"id": "undo", "when": "steps.a.status == 'completed'"},
                {"id": "after", "needs": ["undo"]},
                {"id": "always", "needs": ["undo"], "when": "exists(steps.undo.status)"},
                {"id": "other"},
                {"id": "unmet", "when": "steps.a.status == 'skipped'"},
            ],
        ),
        states={"a": completed(), "b": failed("x")},
    )
    news = run.next()
    assert (ready(news), settled(news)) == (["undo", "other"], {"unmet": "skipped"})
    run.settle("undo", failed("y"))
    news = run.next()
    assert (ready(news), settled(news)) == (["always"], {"after": "skipped"})
    assert news.settled["after"].reason == "Step undo failed."
    run.settle("always", completed())
    run.settle("other", completed())
    assert run.next().end == WorkflowFailed("b", "x")


def test_the_first_failed_step_of_the_file_is_named_whatever_failed_first() -> None:
    run = scheduler(workflow({"id": "a"}, {"id": "b"}))
    run.next()
    run.settle("b", failed("late"))
    run.settle("a", failed("early"))
    assert run.next().end == WorkflowFailed("a", "early")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"when": "params.n"}, "must be true or false"),
        ({"when": "params.n < 'x'"}, "Cannot compare"),
        ({"input": {"x": "a ${params.list}"}}, "Cannot put"),
        ({"input": "${params.list}"}, "must be an object, not a list"),
        ({"for_each": "${params.n}"}, "must be a list, not a number"),
        ({"input": {"x": "${params.optional}"}}, "params.optional is missing"),
    ],
)
def test_a_step_that_cannot_be_evaluated_fails_without_a_run(step: Document, words: str) -> None:
    params = {
        "n": {"type": "integer", "default": 1},
        "list": {"type": "array", "default": []},
        "optional": {"type": "string", "required": False},
    }
    run = scheduler(workflow({"id": "first"}, {"id": "a", **step}, {"id": "z"}, params=params))
    news = run.next()
    # Steps that were ready in the same moment have not begun, so they do not begin.
    assert (ready(news), settled(news)) == ([], {"a": "failed", "first": "skipped", "z": "skipped"})
    assert isinstance(news.end, WorkflowFailed) and words in news.end.reason


def test_an_output_that_cannot_be_evaluated_fails_the_run() -> None:
    definition = workflow(
        {"id": "a", "when": "false"},
        output="${steps.a.output}",
        on_failure=[{"id": "tell", "input": {"step": "${failure.step}"}}],
    )
    run = scheduler(definition)
    [tell] = run.next().ready
    assert tell.input() == {"step": "output"}
    run.settle("tell", completed())
    end = run.next().end
    assert isinstance(end, WorkflowFailed) and end.step is None and "steps.a.output is missing" in end.reason


def test_an_empty_list_completes_the_step_at_once() -> None:
    run = scheduler(
        workflow({"id": "a", "for_each": []}, {"id": "b", "needs": ["a"], "input": {"x": "${steps.a.output}"}})
    )
    news = run.next()
    assert news.settled == {"a": completed([])}
    assert news.ready[0].input() == {"x": []}


def test_items_may_be_written_in_the_file_and_hold_references() -> None:
    definition = workflow(
        {"id": "a", "for_each": [1, "${params.p}"], "input": {"x": "${item}", "i": "${index}"}},
        params={"p": {"type": "string", "default": "v"}},
    )
    [a] = scheduler(definition).next().ready
    assert a.items == [1, "v"]
    assert a.input(1) == {"x": "v", "i": 1}


def test_an_item_whose_input_cannot_be_evaluated_fails_alone() -> None:
    [a] = scheduler(workflow({"id": "a", "for_each": [{"n": 1}, {}], "input": {"x": "${item.n}"}})).next().ready
    assert a.input(0) == {"x": 1}
    with pytest.raises(ExpressionError, match=r"item\.n is missing"):
        a.input(1)
    assert items_state(a.step, [completed(), failed("item.n is missing")]) == failed("Item 1: item.n is missing")


def test_too_many_items_are_refused() -> None:
    definition = workflow({"id": "a", "for_each": "${params.p}"}, params={"p": {"type": "array"}})
    news = scheduler(definition, {"p": [0] * 100_001}).next()
    assert isinstance(news.end, WorkflowFailed) and "100,001 items, more than 100,000" in news.end.reason
    assert ready(scheduler(definition, {"p": [0] * 100_000}).next()) == ["a"]


def test_only_running_steps_can_be_settled() -> None:
    run = scheduler(workflow({"id": "a"}, {"id": "b", "needs": ["a"]}))
    for name, state in (("a", completed()), ("b", completed())):
        with pytest.raises(ValueError, match="Cannot settle"):
            run.settle(name, state)
    run.next()
    with pytest.raises(ValueError, match="Cannot settle"):
        run.settle("a", RUNNING)
    run.settle("a", completed())
    with pytest.raises(ValueError, match="Cannot settle"):
        run.settle("a", completed())


# Random runs.

# What a step says about the first step that it needs, "NEED"; the first few say nothing about it.
CONDITIONS = (
    "true",
    "false",
    "params.p",
    "NEED.status == 'skipped'",
    "NEED.status != 'skipped'",
    "exists(NEED.output)",
)
INPUTS = ("none", "${params.p}", "${NEED.output}", "${NEED.output ?? 0}")


@st.composite
def workflows(draw: st.DrawFn) -> WorkflowDefinition:
    def one(prefix: str, number: int) -> Document:
        before = [f"{prefix}{n}" for n in range(number)]
        needs = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        need = f"steps.{needs[0]}" if needs else ""
        value = draw(st.sampled_from(INPUTS if needs else INPUTS[:2])).replace("NEED", need)
        step: Document = {"id": f"{prefix}{number}", "needs": needs, "input": {"x": value}}
        if draw(st.booleans()):
            step["when"] = draw(st.sampled_from(CONDITIONS if needs else CONDITIONS[:3])).replace("NEED", need)
        if draw(st.integers(0, 3)) == 0:
            step["for_each"] = draw(st.sampled_from([[], [1, 2], "${params.list}", "${params.p}"]))
        return step

    steps = [one("s", number) for number in range(draw(st.integers(1, 7)))]
    return workflow(
        *draw(st.permutations(steps)),
        on_failure=[one("f", number) for number in range(draw(st.integers(0, 3)))],
        params={"p": {"type": "boolean", "default": True}, "list": {"type": "array", "default": [0]}},
        output=draw(st.sampled_from([None, "${steps.s0.output ?? 0}", "${steps.s0.output}"])),
    )


class Simulation:
    """Runs a workflow with random outcomes in a random order, and checks the rules at every turn."""

    def __init__(self, definition: WorkflowDefinition, seed: int, failures: float) -> None:
        self.definition = definition
        self.random = random.Random(seed)
        self.failures = failures
        self.needs = {step.id: step.needs for step in definition.all_steps()}
        self.on_failure = {step.id for step in definition.on_failure}
        self.running: list[str] = []
        self.log: list[Any] = []

    def outcome(self) -> StepState:
        is_failure = self.random.random() < self.failures
        return failed("chance") if is_failure else completed(self.random.choice([1, {}, None]))

    def run(self) -> WorkflowCompleted | WorkflowFailed:
        run = scheduler(self.definition)
        known = dict(run.states)
        for _ in range(len(self.needs) + 1):
            news = run.next()
            self.check(known, run, news)
            self.log.append((ready(news), {**news.settled}, news.end))
            if news.end is not None:
                assert self.running == []
                self.check_end(run, news.end)
                return news.end
            self.running += ready(news)
            assert self.running, "nothing runs, and the run has not ended"
            known = dict(run.states)
            name = self.running.pop(self.random.randrange(len(self.running)))
            known[name] = self.outcome()
            run.settle(name, known[name])
        raise AssertionError("the run does not end")

    def check(self, known: Mapping[str, StepState], run: RunScheduler, news: NextSteps) -> None:
        """`known` is what the last call and the settlement since then said."""
        for name in [*ready(news), *news.settled]:
            assert known[name].status is StepStatus.PENDING, "a step is handed out or settled once"
        assert {name for name, state in run.states.items() if state != known[name]} == {*ready(news), *news.settled}
        for step in news.ready:
            assert all(run.states[need].status.has_ended for need in self.needs[step.id])
            if step.items is None:
                assert isinstance(step.input(), dict)
            if step.id in self.on_failure:
                assert all(run.states[each.id].status.has_ended for each in self.definition.steps)
            else:
                assert not self.is_failing(run), "after a failure nothing starts"
        self.check_restart(run, news)

    def check_restart(self, run: RunScheduler, news: NextSteps) -> None:
        """From the states alone the same decisions follow: nothing is remembered that a crash would lose."""
        in_flight = sorted([*self.running, *ready(news)])
        ended = {name: state for name, state in run.states.items() if state.status.has_ended}
        again = scheduler(self.definition, states=ended).next()
        if not self.is_failing(run) or all(name in self.on_failure for name in in_flight):
            assert (sorted(ready(again)), dict(again.settled), again.end) == (in_flight, {}, news.end)
        held = scheduler(self.definition, states=run.states).next()
        assert (ready(held), dict(held.settled), held.end) == ([], {}, news.end)

    def is_failing(self, run: RunScheduler) -> bool:
        return any(run.states[step.id].status is StepStatus.FAILED for step in self.definition.steps)

    def check_end(self, run: RunScheduler, end: WorkflowCompleted | WorkflowFailed) -> None:
        main = [run.states[step.id].status for step in self.definition.steps]
        assert all(status.has_ended for status in main)
        has_failed = StepStatus.FAILED in main
        if isinstance(end, WorkflowCompleted):
            assert not has_failed
            assert all(run.states[name].status is StepStatus.PENDING for name in self.on_failure)
        else:
            assert has_failed == (end.step is not None)
            assert all(run.states[name].status.has_ended for name in self.on_failure)


@settings(max_examples=200)
@given(workflows(), st.integers(0, 1 << 32), st.sampled_from([0.0, 0.2, 0.6]))
def test_every_run_ends_by_the_rules_and_the_same_way_each_time(
    definition: WorkflowDefinition, seed: int, failures: float
) -> None:
    first = Simulation(definition, seed, failures)
    second = Simulation(definition, seed, failures)
    assert first.run() == second.run()
    assert first.log == second.log


def test_a_run_of_very_many_steps_costs_as_much_for_each() -> None:
    def cost(count: int) -> float:
        chain = workflow(*({"id": f"s{n}", "needs": [f"s{n - 1}"] if n else []} for n in range(count)))
        began = time.process_time()
        run = scheduler(chain)
        news = run.next()
        while news.end is None:
            run.settle(news.ready[0].id, completed())
            news = run.next()
        return time.process_time() - began

    cost(10)
    # Eight times the steps; by the square it would be 64 times.
    assert min(cost(2000) for _ in range(3)) < 24 * min(cost(250) for _ in range(3))


def test_skipped_and_failed_are_told_apart_from_completed() -> None:
    states = {"a": skipped("why")}
    assert scheduler(workflow({"id": "a"}), states=states).next().end == WorkflowCompleted(None)
    assert scheduler(workflow({"id": "a"}), states={"a": failed("x")}).next().end == WorkflowFailed("a", "x")
