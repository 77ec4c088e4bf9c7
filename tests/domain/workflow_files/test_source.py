"""The text of workflow files: JSON and YAML give the same values, and hostile text is rejected."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.workflow_files.support import SCAN, json_values

from jobyard.domain.workflow_files import yaml_text
from jobyard.domain.workflow_files.problems import Problems
from jobyard.domain.workflow_files.source import MAX_BYTES, MAX_DEPTH, Format, TextError, check_text, parse

both_parsers = pytest.mark.parametrize(
    "loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)], ids=["python", "c"]
)


@given(json_values)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert repr(parse(json.dumps(value), Format.JSON)) == repr(value)


@given(json_values)
def test_json_is_also_yaml(value: Any) -> None:
    # YAML has no escape for half of a pair, so JSON's pairs of escapes are not YAML; nor are control characters plain.
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        assert parse(text, Format.YAML) == value


@both_parsers
def test_yaml_of_the_core_schema(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_LOADER", loader)
    text = """
    # a comment
    no: no
    on: [yes, Off, y, TRUE, False]
    null: ~
    empty:
    octal: [012, 0o14, 0x1F]
    numbers: [1, -2, +3, 1.5, .5, 1e3, 5.]
    texts: [1_000, 12:30:00, 2026-01-01, 1.2.3, "5", '~', =]
    <<: merged
    folded: >-
      one
      two
    reference: ${params.a ?? "x"}
    condition: steps.a.status == "skipped" and not (params.b in [1, 2])
    """
    assert parse(text, Format.YAML) == {
        "no": "no",
        "on": ["yes", "Off", "y", True, False],
        "null": None,
        "empty": None,
        "octal": [12, 12, 31],
        "numbers": [1, -2, 3, 1.5, 0.5, 1000.0, 5.0],
        "texts": ["1_000", "12:30:00", "2026-01-01", "1.2.3", "5", "~", "="],
        "<<": "merged",
        "folded": "one two",
        "reference": '${params.a ?? "x"}',
        "condition": 'steps.a.status == "skipped" and not (params.b in [1, 2])',
    }


@both_parsers
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x 1\nb: *x", "Line 2, column 4: the alias *x"),
        ("a: !!python/object/apply:os.system [id]", "the tag"),
        ("a: !!str 1", "the tag"),
        ("a: 1\n---\nb: 2", "Line 2, column 1: a file holds one document"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: .inf", ".inf is not a JSON number"),
        ("a: 99999999999999999999", "too large"),
        ("a: {b: ${params.x}}", "in quotation marks"),
        ("a: [1", "is not YAML"),
        ("a: \x07", "does not allow"),
        ("[" * 100_000, "nested deeper than 64"),
        ("- " * 1000, "nested deeper than 64"),
    ],
)
def test_yaml_that_is_rejected(text: str, words: str, loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_LOADER", loader)
    with pytest.raises(TextError) as caught:
        parse(text, Format.YAML)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Line 1, column 2 is not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("[1e999]", "too large"),
        ("[18446744073709551616]", "too large"),
        ("[" + "1" * 10_000 + "]", "too large"),
        ("[" * 1_000_000, "nested deeper than 64"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested deeper than 64"),
        ('"\ud800"', "not UTF-8"),
        (" " * (MAX_BYTES + 1), "at most 1,048,576"),
    ],
)
def test_json_that_is_rejected(text: str, words: str) -> None:
    with pytest.raises(TextError) as caught:
        parse(text, Format.JSON)
    assert words in str(caught.value)


@given(st.text(max_size=60), st.sampled_from(Format))
def test_parsing_is_total(text: str, text_format: Format) -> None:
    with contextlib.suppress(TextError):
        parse(text, text_format)


@pytest.mark.parametrize("text_format", Format)
def test_every_duplicate_key_is_reported_with_its_place(text_format: Format) -> None:
    problems = Problems()
    document = parse('{"a": 1, "b": {"c/d": 1, "c/d": [{"e": 1, "e": 2}]}, "a": 3, "a": 4}', text_format)
    check_text(document, problems)
    assert [line.rpartition(": ")[0] for line in problems.lines("f", document)] == [
        "f: /a",
        "f: /b/c~1d",
        "f: /b/c~1d/0/e",
    ]


def test_text_that_no_store_can_hold_is_reported() -> None:
    problems = Problems()
    document = parse(r'{"a": ["\ud800"], "\udc00": 1}', Format.JSON)
    check_text(document, problems)
    assert len(problems.lines("f", document)) == 2


def test_a_yaml_file_equals_its_json_file() -> None:
    assert parse(yaml.safe_dump(SCAN), Format.YAML) == parse(json.dumps(SCAN), Format.JSON) == SCAN


def test_without_the_yaml_package_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "jobyard.domain.workflow_files.yaml_text")
    with pytest.raises(TextError, match="pip install"):
        parse("a: 1", Format.YAML)
