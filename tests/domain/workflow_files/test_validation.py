"""Validation of workflow files: every problem at once, each with its place and its remedy."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given
from tests.domain.workflow_files.support import SCAN, Document, json_values, parsed, problems

from jobyard.domain.retry import Delays, Exponential, Fixed
from jobyard.domain.workflow_files.definition import OnItemFailure
from jobyard.domain.workflow_files.nodes import Constant, as_text
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.problems import MAX_PROBLEMS
from jobyard.domain.workflow_files.schema import MAX_STEPS
from jobyard.domain.workflow_files.validation import HandlerParameters
from jobyard.errors import InvalidWorkflow

KINDS = {"extract_urls", "scan_product", "store", "notify"}
STEP = {"id": "a", "kind": "k"}


def changed(*path: str | int, to: Any) -> Document:
    """The example with one value replaced."""
    document = copy.deepcopy(SCAN)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return document


def with_steps(*steps: Document, **words: Any) -> Document:
    return {"id": "w", "steps": [{"kind": "k", **step} for step in steps], **words}


def test_the_definition_has_what_the_file_says() -> None:
    found = parsed(SCAN, kinds=KINDS, platforms={"ably", "kurly"})
    assert (found.id, found.version, found.timeout_seconds, found.file) == ("scan", 3, 1800.0, "scan.json")
    assert [(param.name, param.required, param.default) for param in found.params] == [
        ("platform", True, None),
        ("limit", False, Constant(50)),
        ("urls", False, None),
    ]
    extract, scan, store = found.steps
    assert (extract.needs, extract.max_attempts, extract.backoff, extract.timeout_seconds) == ((), None, None, None)
    assert (scan.kind, scan.needs, scan.at_most, scan.on_item_failure) == (
        "scan_product",
        ("extract",),
        5,
        OnItemFailure.CONTINUE,
    )
    assert (scan.max_attempts, scan.backoff, scan.timeout_seconds) == (3, Exponential(base_seconds=1.0), 60.0)
    assert extract.when is not None and as_text(extract.when) == "not exists(params.urls)"
    assert store.for_each is None and store.on_item_failure is OnItemFailure.FAIL
    assert [step.id for step in found.all_steps()] == ["extract", "scan", "store", "notify"]


def test_the_smallest_file() -> None:
    found = parsed({"id": "w", "steps": [STEP]})
    assert (found.version, found.timeout_seconds, found.platform, found.output) == (1, 3600.0, None, Constant(None))
    assert found.steps[0].input == Constant({})


def test_a_stored_text_gives_an_equal_definition_and_any_edit_another_digest() -> None:
    found = parsed(SCAN)
    again = parse_workflow(found.text, file=found.file, text_format=found.text_format)
    assert again == found
    assert parse_workflow(found.text + " ", file=found.file).digest != found.digest


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (5, Fixed(5.0)),
        ([1, 2.5], Delays((1.0, 2.5))),
        ({"type": "fixed", "seconds": 3}, Fixed(3.0)),
        ({"type": "delays", "seconds": [3]}, Delays((3.0,))),
        ({"type": "exponential", "factor": 3}, Exponential(factor=3.0)),
    ],
)
def test_backoff(backoff: Any, expected: Any) -> None:
    [step] = parsed(with_steps({"id": "a", "retry": {"backoff": backoff}})).steps
    assert step.backoff == expected


# Each change of the example, and what the only line about it says.
WRONG: list[tuple[Document, str]] = [
    (changed("steps", 1, "input", "url", to="${steps.extarct.output}"), 'Did you mean "steps.extract"?'),
    (changed("steps", 2, "input", "rows", to="${steps.extract.outputs}"), 'Did you mean "output"?'),
    (changed("steps", 2, "input", "rows", to="${steps}"), "must name a step"),
    (changed("steps", 2, "input", "rows", to="${steps[0].output}"), "is unknown"),
    (changed("steps", 2, "input", "rows", to="${steps.store.output}"), "refers to its own step"),
    (changed("steps", 0, "input", "n", to="${steps.store.output}"), 'Add "store" to /steps/0/needs.'),
    (changed("steps", 0, "input", "n", to="${steps.notify.output}"), 'does not need. Add "notify"'),
    (changed("steps", 0, "input", "n", to="${params.limt}"), 'Did you mean "params.limit"?'),
    (changed("steps", 0, "input", "n", to="${item}"), "only in the input of a step with for_each"),
    (changed("steps", 1, "when", to="index == 0"), "only in the input of a step with for_each"),
    (changed("steps", 0, "input", "n", to="${failure.step}"), "only in on_failure steps"),
    (changed("steps", 0, "input", "n", to="${run.started}"), "run.started_at"),
    (changed("steps", 0, "input", "n", to="${params.limit"), "found the end"),
    (changed("steps", 0, "when", to="params.limit = 1"), "Write ==."),
    (changed("steps", 0, "when", to="5"), "must be true or false, not 5"),
    (changed("steps", 1, "when", to="steps.extract.status == 'complete'"), 'Did you mean "completed"?'),
    (changed("steps", 1, "needs", 0, to="extrct"), 'no such step. Did you mean "extract"?'),
    (changed("steps", 2, "needs", to=["scan", "notify"]), "runs only after a failure"),
    (changed("steps", 2, "needs", to=["scan", "scan"]), "is given twice"),
    (changed("steps", 2, "needs", to="scan"), "must be a list"),
    (changed("on_failure", 0, "needs", to=["scan"]), "has always ended before"),
    (with_steps(STEP, STEP, id="w"), "as that of /steps/0"),
    (with_steps({"id": "to store"}), "must be a name such as"),
    (with_steps({"id": "store\n"}), "must be a name such as"),
    (changed("on_failure", 0, "id", to="scan"), "as that of /steps/1"),
    (changed("steps", 2, "kind", to="stor"), 'Did you mean "store"?'),
    (changed("steps", 2, "knd", to="store"), 'unknown key. Did you mean "kind"?'),
    (changed("steps", 2, "timeout", to=5), 'Did you mean "timeout_seconds"?'),
    (changed("steps", 2, "timeout_seconds", to=0), "must be more than 0"),
    (changed("steps", 2, "at_most", to=5), "only allowed together with for_each"),
    (changed("steps", 1, "at_most", to=0), "must be at least 1"),
    (changed("steps", 1, "for_each", to="urls: ${steps.extract.output}"), "must be a list, or one reference to a list"),
    (changed("steps", 1, "for_each", to="${steps.extract.output ?? 'none'}"), "must be a list, or one reference"),
    (changed("steps", 2, "input", to="${steps.scan.output} x"), "must be an object, or one reference to an object"),
    (changed("steps", 1, "retry", "backoff", "type", to="exponentail"), 'Did you mean "exponential"?'),
    (changed("steps", 1, "retry", "backoff", to={"seconds": 5}), "needs a type"),
    (changed("steps", 1, "retry", "backoff", to="5s"), "must be a number, a list or an object"),
    (changed("steps", 1, "retry", "attempts", to=5), 'Did you mean "max_attempts"?'),
    (with_steps(), "at least 1 item"),
    (changed("params", "limit", "type", to="int"), "must be one of"),
    (changed("params", "limit", "default", to=101), "must be at most 100"),
    (changed("params", "limit", "required", to=True), "although there is a default"),
    (changed("params", "platform", "minimum", to=1), "only allowed with the type integer or number"),
    (changed("params", "urls", "items", "maximum", to=1), "only allowed with the type integer or number"),
    (changed("params", "platform", "items", to={"type": "string"}), "only allowed with the type array"),
    (changed("params", "a b", to={"type": "string"}), "must be a name such as"),
    (changed("platform", to="${params.platfrm}"), 'Did you mean "params.platform"?'),
    (changed("platform", to="${steps.scan.output}"), "Only params can be used here"),
    (changed("platform", to="alby"), 'Did you mean "ably"?'),
    (changed("platform", to="a\nb"), "printable"),
    (changed("output", to={"a": "${steps.notify.output}"}), "may not have run"),
    (changed("output", to="${item}"), "only in the input of a step with for_each"),
    (changed("version", to="3"), "must be a whole number"),
    (changed("id", to=5), "must be text"),
    (changed("step", to=[]), 'Did you mean "steps"?'),
]


@pytest.mark.parametrize(("document", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_problem_is_reported_once_with_its_place_and_cure(document: Document, words: str) -> None:
    [line] = problems(document, kinds=[*KINDS, "k"], platforms=["ably", "kurly"])
    at, _, message = line.partition(": ")
    assert words in message
    value: Any = document
    for key in at.split("/")[1:]:  # the place exists
        value = value[int(key) if isinstance(value, list) else key]


def test_all_problems_of_a_file_are_reported_in_its_order() -> None:
    document = {
        "id": "w",
        "steps": [
            {"id": "a", "kind": "kk", "input": {"x": "${params.nothing}", "y": "${item}"}},
            7,
            {"id": "b", "when": "true &&", "needs": ["aa"]},
        ],
        "output": "${steps.c.output}",
    }
    found = problems(document, kinds={"k"})
    assert [line.partition(": ")[0] for line in found] == [
        "/steps/0/kind",
        "/steps/0/input/x",
        "/steps/0/input/y",
        "/steps/1",
        "/steps/2",
        "/steps/2/when",
        "/steps/2/needs/0",
        "/output",
    ]


def test_the_name_of_the_file_comes_first() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse_workflow("{", file="workflows/scan.json")
    assert caught.value.problems == (
        "workflows/scan.json: Line 1, column 2 is not JSON: Expecting property name enclosed in double quotes.",
    )


def test_cycles_are_named() -> None:
    document = with_steps(
        {"id": "a", "needs": ["c"]},
        {"id": "b", "needs": ["a"]},
        {"id": "c", "needs": ["b"], "input": {"x": "${steps.a.output}"}},  # no second problem because of the cycle
        {"id": "d", "needs": ["c"]},
        {"id": "e", "needs": ["e"]},
    )
    assert problems(document) == [
        "/steps/0/needs: makes a cycle: a needs c needs b needs a. Remove one of them.",
        "/steps/4/needs: makes a cycle: e needs e. Remove one of them.",
    ]


def test_a_need_may_be_indirect_and_the_order_in_the_file_is_free() -> None:
    document = with_steps(
        {"id": "c", "needs": ["b"], "input": {"x": "${steps.a.output}", "y": "${steps.b.status}"}},
        {"id": "b", "needs": ["a"]},
        {"id": "a"},
    )
    assert problems(document) == []


def test_duplicate_keys_are_reported_beside_other_problems() -> None:
    text = '{"id": "w", "id": "v", "steps": [{"id": "a", "kind": "k", "input": {"x": 1, "x": "${nope}"}}]}'
    with pytest.raises(InvalidWorkflow) as caught:
        parse_workflow(text)
    assert [line.split(": ")[1] for line in caught.value.problems] == ["/id", "/steps/0/input/x", "/steps/0/input/x"]


def test_on_failure_steps_may_refer_to_all_steps_and_to_the_failure() -> None:
    undo = {"id": "undo", "kind": "k", "when": "steps.a.status == 'completed'", "input": {"x": "${steps.a.output}"}}
    tell = {"id": "tell", "kind": "k", "needs": ["undo"], "input": {"x": "${failure.step} ${steps.undo.status}"}}
    assert problems(with_steps({"id": "a"}, on_failure=[undo, tell])) == []
    assert problems(with_steps({"id": "a"}, on_failure=[undo, {**tell, "needs": []}])) == [
        '/on_failure/1/input/x: refers to "steps.undo", which step "tell" does not need. Add "undo" to '
        "/on_failure/1/needs."
    ]


@given(json_values)
def test_validation_is_total(value: Any) -> None:
    """Any JSON in any place is accepted or reported."""
    for document in (
        value,
        {"id": "w", "steps": value},
        {"id": "w", "steps": [value]},
        {"id": "w", "steps": [STEP], "params": value, "output": value},
        {"id": "w", "steps": [STEP], "params": {"p": value}},
        *(with_steps({"id": "a", key: value}) for key in ("id", "kind", "needs", "input", "when", "for_each", "retry")),
        with_steps({"id": "a"}, on_failure=value, platform=value),
    ):
        problems(document, kinds={"k"}, platforms={"p"})


def test_a_file_with_very_many_problems_is_judged_soon() -> None:
    steps = [{"id": f"step-{n}", "kind": "k", "needs": [f"stp-{n}"]} for n in range(MAX_STEPS)]
    began = time.process_time()
    found = problems({"id": "w", "steps": steps})
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1] == "more problems may follow."
    assert time.process_time() - began < 20  # 2 s is usual; hints for all of them would take minutes


def test_a_chain_of_the_most_steps_is_valid() -> None:
    first = {"id": "s0", "kind": "k"}
    step = {"kind": "k", "input": {"x": "${steps.s0.output}"}}
    steps: list[Document] = [first, *({**step, "id": f"s{n}", "needs": [f"s{n - 1}"]} for n in range(1, MAX_STEPS))]
    assert len(json.dumps(steps)) < 1 << 20
    assert problems({"id": "w", "steps": steps}) == []
    assert problems({"id": "w", "steps": [*steps, {"id": "s", "kind": "k"}]}) == [
        "/steps: must have at most 2,000 items, not 2,001."
    ]


def test_the_input_of_a_step_is_compared_with_the_parameters_of_its_handler() -> None:
    kinds = {"fetch": HandlerParameters(("url", "limit"), ("url",)), "plain": HandlerParameters(())}
    document = {
        "id": "w",
        "params": {"all": {"type": "object"}},
        "steps": [
            {"id": "a", "kind": "fetch", "input": {"ulr": "x", "limit": 1}},
            {"id": "b", "kind": "fetch"},
            {"id": "c", "kind": "plain", "input": {"limit": 1}},
            {"id": "d", "kind": "fetch", "input": "${params.all}"},
            {"id": "e", "kind": "fetch", "input": {"url": "x"}},
        ],
    }
    assert problems(document, kinds=kinds) == [
        "/steps/0/input: needs url, a parameter of fetch(url, limit). Add it to the input.",
        '/steps/0/input/ulr: is not a parameter of fetch(url, limit). Did you mean "url"?',
        "/steps/1: needs url, a parameter of fetch(url, limit). Add it to the input.",
        "/steps/2/input/limit: is not a parameter of plain(). Remove it.",
    ]
    assert problems(document, kinds=list(kinds)) == []


def test_the_values_of_an_enum_lead_to_known_platforms() -> None:
    def found(platform: str, **words: Any) -> list[str]:
        param = {"type": "string", "enum": ["ably", "kurli", "zigzag"]}
        document = {"id": "scan", "platform": platform, "params": {"shop": param, "other": {"type": "string"}}}
        return problems(document | {"steps": [{"id": "a", "kind": "k"}]}, **words)

    [first, second] = found("${params.shop}", platforms=["ably", "kurly"])
    assert '/params/shop/enum/1: leads to the platform "kurli", which is unknown.' in first
    assert first.endswith('Known platforms: ably, kurly. Did you mean "kurly"?')
    assert '/params/shop/enum/2: leads to the platform "zigzag"' in second
    known = ["site-ably", "site-kurli", "site-zigzag"]
    assert found("site-${params.shop}", platforms=known) == []
    assert len(found("site-${params.shop}", platforms=known[:1])) == 2
    assert found("${params.shop}") == []  # the platforms are not known here
    assert found("${params.shop}-${params.other}", platforms=["ably"]) == []
