"""Templates: references in the texts of a JSON value, evaluated once."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.workflow_files.support import json_values, scope, texts

from jobyard.domain.workflow_files.nodes import Constant, as_text
from jobyard.domain.workflow_files.templates import (
    MAX_TEXT,
    Template,
    compile_template,
    compile_text,
    evaluate,
    operands,
)
from jobyard.errors import ExpressionError


def template(value: Any) -> Template:
    problems: list[tuple[str, str]] = []
    found = compile_template(value, "", lambda at, message: problems.append((at, message)))
    assert problems == []
    return found


def result(value: Any, params: Any = None, **roots: Any) -> Any:
    return evaluate(template(value), scope(params, **roots))


@given(json_values)
def test_a_reference_alone_gives_the_value_itself(value: Any) -> None:
    params = {"v": value}
    assert result("${params.v}", params) is value
    assert result({"a": ["${ params.v }"]}, params)["a"][0] is value


@given(texts, texts.filter(lambda text: "$" not in text))
def test_substituted_text_is_never_scanned_again(value: str, around: str) -> None:
    for text in (value, "${params.secret}", "$${" + value, "${", value + "$"):
        found = result(f"{around}${{params.v}}{around}", {"v": text, "secret": "s3cret"})
        assert found == around + text + around if around else found == text


@given(json_values)
def test_a_substituted_value_never_becomes_a_key_or_a_reference(value: Any) -> None:
    params = {"v": value, "secret": "s3cret"}
    found = result({"${params.secret}": {"k": "${params.v}"}, "$${": [1]}, params)
    assert list(found) == ["${params.secret}", "$${"]  # keys are literal
    assert found["${params.secret}"]["k"] is value


@given(json_values.filter(lambda value: "$" not in repr(value)))
def test_a_value_without_references_is_itself(value: Any) -> None:
    found = template(value)
    assert isinstance(found, Constant) and repr(found.value) == repr(value)


@given(texts)
def test_any_text_can_be_written_with_the_escape(text: str) -> None:
    for plain in (text, f"{text}${{params.x}}{text}", "$" + text + "{"):
        written = plain.replace("${", "$${")
        assert result(written) == plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("page ${params.n} of ${params.half}", "page 2 of 0.5"),
        ("${params.flag}!", "true!"),
        ("${params.n}${params.n}", "22"),
        ("$${params.n}", "${params.n}"),
        ("$$${params.n}", "$${params.n}"),
        ("${'$'}${params.n}", "$2"),
        ("$5 and $ {x}", "$5 and $ {x}"),
        ("${params.n}}", "2}"),
        ("${params['}']}", "brace"),
        ('${params.x ?? "}"}', "}"),
        ("${params.x ?? 'none'}", "none"),
        ("a ${params.x ?? 1}", "a 1"),
        ("${params.null ?? 5}", None),
        ("${params.x ?? []}", []),
        ("${true}", True),
        ("", ""),
    ],
)
def test_texts(text: str, value: Any) -> None:
    found = result(text, {"n": 2, "half": 0.5, "flag": True, "null": None, "}": "brace"})
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", [None, [], {}, 10**30, float("inf"), (1,)])
def test_only_text_numbers_and_booleans_go_into_text(value: Any) -> None:
    with pytest.raises(ExpressionError, match=r"Cannot (put|write)"):
        result("a ${params.v}", {"v": value})


def test_a_text_with_references_is_bounded() -> None:
    with pytest.raises(ExpressionError, match="longer than"):
        result("${params.v}" * 40, {"v": "x" * (MAX_TEXT // 20)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${", "found the end"),
        ("${}", "expected a value, found }"),
        ("${params.a", "expected }, found the end"),
        ("a ${params.a b}", "at character 14: expected }, found b"),
        ("${params.a == 1}", "expected }, found =="),
        ("${steps.a.output.run()}", "expected }, found ("),
        ("${params." + "a" * 3000 + "}", "more than 2,000 characters"),
        ("${__import__('os')}", '"__import__" is not one of'),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(text: str, words: str) -> None:
    found: list[tuple[str, str]] = []
    compile_template({"a/b": [1, text]}, "/input", lambda at, message: found.append((at, message)))
    [(at, message)] = found
    assert at == "/input/a~1b/1"
    assert words in message


@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["$", "{", "}", "${", "params", ".a", "??", "'", "1"])).map("".join)
)
def test_compiling_is_total(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        compile_text(text)


def test_operands_have_the_pointers_of_their_texts() -> None:
    found = operands(template({"a": ["x", "${params.b} ${item}"], "c": "${run.id}"}), "/input")
    assert [(at, as_text(operand)) for at, operand in found] == [
        ("/input/a/0", '"x"'),
        ("/input/a/1", "params.b"),
        ("/input/a/1", "item"),
        ("/input/c", "run.id"),
    ]


HOSTILE: list[Callable[[int], str]] = [
    lambda n: "$" * n,
    lambda n: "${" * n,
    lambda n: "$${" * n,
    lambda n: "${params.a}" * n,
    lambda n: "${'" + "\\" * n,
    lambda n: "${" + " " * n,
    lambda n: "{" * n + "${",
    lambda n: "${params" + "[0]" * n,
]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: re.sub(r"\W", "_", make(1)))
def test_compiling_takes_linear_time(make: Callable[[int], str]) -> None:
    def cost(size: int) -> float:
        text = make(size)

        def once() -> float:
            began = time.process_time()
            with contextlib.suppress(ExpressionError):
                compile_text(text)
            return time.process_time() - began

        return min(once() for _ in range(3))

    # Sixteen times the text takes about sixteen times as long; by the square it would be 256 times.
    assert cost(32_000) < 64 * max(cost(2_000), 0.001)
