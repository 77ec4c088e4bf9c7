"""The language of references and conditions: what it accepts, what it means, and that hostile text cannot misuse it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.domain.workflow_files.support import expressions, json_values, keys, references, scope, texts

from jobyard.domain.workflow_files.evaluation import equal, evaluate_condition, evaluate_operand
from jobyard.domain.workflow_files.expressions import MAX_DEPTH, ROOTS, parse_condition
from jobyard.domain.workflow_files.nodes import Constant, Expression, Reference, as_text
from jobyard.domain.workflow_files.tokens import MAX_LENGTH
from jobyard.errors import ExpressionError

VALUES = {
    "n": 2,
    "half": 0.5,
    "text": "abc",
    "flag": True,
    "null": None,
    "list": [1, "a", [True]],
    "object": {"x y": {"z": [10, 20]}},
}
STEPS = {"a": {"status": "completed", "output": {"urls": ["u"]}}, "skip-me": {"status": "skipped"}}


def holds(text: str) -> bool:
    return evaluate_condition(parse_condition(text), scope(VALUES, STEPS, run={"id": "r"}))


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "not false",
        "params.n == 2",
        "params.n == 2.0",
        "params.n >= 2 and params.half < 1",
        '"a" < "b"',
        "'abc' == params.text",
        '"b" in params.text',
        '"x y" in params.object',
        "[true] in params.list",
        "params.n in [1, 2]",
        'params.object["x y"].z[1] == 20',
        "params.null == null",
        "exists(params.null) and not exists(params.nothing)",
        "exists(steps.a.output.urls[0]) and not exists(steps.a.output.urls[1])",
        'steps.skip-me.status == "skipped" and not exists(steps.skip-me.output)',
        '(params.nothing ?? "x") == "x"',
        "params.null ?? 5 == null",
        "false or (true and not (1 == 2))",
        "params.flag == (1 < 2)",
        "true or params.nothing",  # the right side is not evaluated
        "not (false and params.nothing)",
        r'"\u00e9\n\ud83d\ude00" == "é' + "\n" + '😀"',
    ],
)
def test_conditions_that_hold(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    ['"1" == 1', "1 == true", "true == 1", "0 == false", "null == false", "[1] == [true]", "1 in [true]"],
)
def test_nothing_is_coerced(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"1" < 1', "not two numbers or two texts"),
        ("true < 2", "not two numbers or two texts"),
        ("null <= null", "not two numbers or two texts"),
        ("params.n", "must be true or false"),
        ("1 and true", "must be true or false"),
        ("not 0", "must be true or false"),
        ("params.nothing == 1", "params.nothing is missing"),
        ("params.text.length == 1", "params.text.length is missing: params.text is text"),
        ("params.list[7] == 1", "params.list[7] is missing"),
        ("steps.skip-me.output == 1", "step skip-me is skipped"),
        ('1 in "123"', "not a value in a list"),
        ("1 in 2", "not a value in a list"),
        ("item == 1", "item is missing"),
    ],
)
def test_what_cannot_be_evaluated_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(words)):
        holds(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found the end"),
        ("parms.a", 'Did you mean "params"?'),
        ("env.HOME == 1", '"env" is not one of'),
        ("params.a = 1", "Write ==."),
        ("params.a && true", "Write and."),
        ("params.a || true", "Write or."),
        ("!params.a", "Write not."),
        ("params.a not in [1]", "Write not (a in b)."),
        ("1 < 2 < 3", "cannot be chained"),
        ("${params.a}", "without ${ }"),
        ("params[-1]", "an index from 0"),
        ("params[0.5]", "an index from 0"),
        ("params[params.a]", "an index from 0"),
        ("params.a.*", "a name"),
        ("params.a + 1 == 2", "found +"),
        ("len(params.a) == 1", '"len" is not one of'),
        ("params.get('a')", "found ("),
        ('"abc', "no closing quotation mark"),
        (r'"\x41" == 1', "unknown escape"),
        (r'"\ud800" == 1', "half of a surrogate pair"),
        ("1e999 == 1", "too large"),
        ("1" * 30 + " == 1", "too large"),
        ("01 == 1", "is not a number"),
        ("exists(1)", "a path"),
        ("exists(params.a ?? 1)", "expected )"),
        ("params.a ?? params.b", "expected a value"),
        ("true)", "the end, found )"),
        ("(true", "expected )"),
        ("in", "a path"),
    ],
)
def test_what_cannot_be_parsed_names_the_place_and_the_cure(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(words)):
        parse_condition(text)


def test_length_and_depth_are_bounded() -> None:
    assert holds("not " * MAX_DEPTH + "true") and holds("(" * MAX_DEPTH + "true" + ")" * MAX_DEPTH)
    assert holds(" and ".join(["true"] * 200))  # long, and not deep
    for deep in ("not " * (MAX_DEPTH + 1), "(" * (MAX_DEPTH + 1), "[" * (MAX_DEPTH + 1)):
        with pytest.raises(ExpressionError, match="nested deeper than 32"):
            parse_condition(deep + "true")
    with pytest.raises(ExpressionError, match="at most 2,000"):
        parse_condition("true" + " " * MAX_LENGTH)


@given(expressions)
def test_text_and_expression_are_one(expression: Expression) -> None:
    text = as_text(expression)
    if len(text) <= MAX_LENGTH:
        assert repr(parse_condition(text)) == repr(expression)  # repr tells 1 from True and 1.0


TOKENS = [
    *ROOTS,
    "and",
    "or",
    "not",
    "in",
    "exists",
    "(",
    ")",
    "[",
    "]",
    ".",
    "==",
    "<",
    "??",
    ",",
    "'a'",
    '"',
    "1",
    "-",
    "true",
]


@given(st.text(max_size=40) | st.lists(st.sampled_from(TOKENS), max_size=15).map(" ".join))
@example("params." + "\N{ARABIC-INDIC DIGIT ONE}")
def test_parsing_is_total(text: str) -> None:
    try:
        expression = parse_condition(text)
    except ExpressionError:
        return
    assert repr(parse_condition(as_text(expression))) == repr(expression)


class Trap:
    """A value that is not JSON, and notices every access."""

    def __getattribute__(self, name: str) -> Any:
        assert name == "__class__", f"{name} was read"  # isinstance() reads it
        return object.__getattribute__(self, name)

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("an item was read")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    __hash__ = object.__hash__


strange = st.sampled_from([float("nan"), float("inf"), 10**5000, -(10**5000), (1, 2), b"x"]) | st.builds(Trap)
wild_values = json_values | st.dictionaries(texts, json_values | strange, max_size=3) | st.lists(strange, max_size=2)


@settings(max_examples=300)
@given(expressions, st.dictionaries(st.sampled_from(["a", "b", "x y"]), wild_values), wild_values)
def test_evaluation_is_total(expression: Expression, params: dict[str, Any], output: Any) -> None:
    where = scope(params, {"a": {"status": "completed", "output": output}}, item=output, index=0)
    try:
        assert evaluate_condition(expression, where) in (True, False)
    except ExpressionError as error:
        assert len(str(error)) < 10_000


@given(references, st.dictionaries(texts, wild_values, max_size=3), wild_values)
def test_a_reference_gives_its_default_or_what_dicts_and_lists_hold(
    reference: Reference, params: dict[str, Any], item: Any
) -> None:
    where = scope(params, {"a": {"status": "completed", "output": item}}, item=item)
    reachable: set[int] = {id(params), id(where.steps["a"]["status"])}
    pending = [*params.values(), item]
    while pending:
        value = pending.pop()
        reachable.add(id(value))
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if reference.default is not None:
        reachable.add(id(reference.default.value))
    try:
        found = evaluate_operand(reference, where)
    except ExpressionError:
        return
    assert id(found) in reachable


@given(keys)
def test_attributes_are_never_reached(key: str | int) -> None:
    values: list[Any] = ["text", 5, True, None, Trap(), scope, {}, []]
    for value in values:
        reference = Reference("params", ("value", key), Constant("missing"))
        assert evaluate_operand(reference, scope({"value": value})) == "missing"


@given(json_values, json_values)
def test_equality_is_that_of_json(left: Any, right: Any) -> None:
    def typed(value: Any) -> Any:
        match value:
            case bool() | None:
                return (str(value), value)
            case dict():
                return {key: typed(each) for key, each in value.items()}
            case list():
                return [typed(each) for each in value]
        return value

    assert equal(left, left) and equal(left, right) == equal(right, left) == (typed(left) == typed(right))


def test_values_nested_deeper_than_python_can_recurse() -> None:
    deep: Any = []
    other: Any = []
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert evaluate_condition(parse_condition("params.a == params.b"), scope({"a": deep, "b": other}))
    assert not evaluate_condition(parse_condition("params.a in params.b"), scope({"a": deep, "b": other}))
    for each in (deep, other):  # Python frees it by recursion
        while each:
            each = each.pop()  # noqa: PLW2901


HOSTILE: list[Callable[[int], str]] = [
    lambda n: "(" * n,
    lambda n: "not " * n,
    lambda n: '"' + "\\" * n,
    lambda n: '"' + '\\"' * n,
    lambda n: "'" * n,
    lambda n: " " * n,
    lambda n: "params" + ".a" * n,
    lambda n: "params" + "[0]" * n,
    lambda n: "true and " * n + "true",
    lambda n: "[" + "1," * n,
    lambda n: "1" * n,
    lambda n: "1e" * n,
    lambda n: "?" * n,
    lambda n: "-" * n,
]


@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_condition_is_judged_at_once(make: Callable[[int], str]) -> None:
    text = make(MAX_LENGTH)[:MAX_LENGTH]
    began = time.process_time()
    for _ in range(10):
        with contextlib.suppress(ExpressionError):
            parse_condition(text)
    assert time.process_time() - began < 2.0  # a tenth of that is usual; a square of the length would take minutes
