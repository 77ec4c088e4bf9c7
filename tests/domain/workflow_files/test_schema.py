"""The JSON Schema of workflow files: other validators and ours agree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.workflow_files.support import SCAN, json_values
from tests.domain.workflow_files.test_validation import WRONG

from jobyard.domain.workflow_files.problems import FileProblem
from jobyard.domain.workflow_files.schema import SCHEMA, Schema
from jobyard.domain.workflow_files.schema_check import ANNOTATIONS, check

VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
KEYWORDS = {
    *ANNOTATIONS,
    *("$ref", "type", "enum", "anyOf", "properties", "additionalProperties", "propertyNames", "required"),
    *("dependentRequired", "items", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern"),
    *("minimum", "exclusiveMinimum", "maximum"),
}
SMALLEST = {"id": "w", "steps": [{"id": "a", "kind": "k"}]}
EXAMPLES = [
    SCAN,
    SMALLEST,
    {**SMALLEST, "$schema": "x", "version": 2.0, "output": None, "params": {}, "on_failure": []},
]


def ours(document: Any) -> list[FileProblem]:
    return list(check(SCHEMA, document, SCHEMA))


def schemas(schema: Schema) -> Iterator[Schema]:
    yield schema
    below = [schema.get("items"), schema.get("additionalProperties"), schema.get("propertyNames")]
    below += [*schema.get("anyOf", ()), *schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for each in below:
        if isinstance(each, dict):
            yield from schemas(each)


def test_it_is_a_json_schema_of_the_keywords_that_are_interpreted() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert {keyword for schema in schemas(SCHEMA) for keyword in schema} <= KEYWORDS


def test_every_key_is_described() -> None:
    described = {"seconds", "type", "base_seconds", "factor", "max_seconds", "jitter", "minimum", "maximum"}
    undescribed = {
        key
        for schema in schemas(SCHEMA)
        for key, value in schema.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    }
    assert undescribed - described <= {"description"}


@pytest.mark.parametrize("document", EXAMPLES)
def test_examples_are_valid(document: Any) -> None:
    assert VALIDATOR.is_valid(document)
    assert ours(document) == []


@pytest.mark.parametrize("document", [document for document, _ in WRONG], ids=[words for _, words in WRONG])
def test_counter_examples_get_the_same_verdict(document: Any) -> None:
    assert bool(ours(document)) == (not VALIDATOR.is_valid(document))


def test_most_counter_examples_of_structure_are_found_by_the_schema_alone() -> None:
    assert sum(not VALIDATOR.is_valid(document) for document, _ in WRONG) >= 15


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


words = st.sampled_from(["fixed", "delays", "type", "string", "a", "${params.limit}", "a\n", "true"])
values = json_values | words | st.integers(-1, 3) | st.lists(words | st.integers(-1, 2), max_size=3)
keys = st.sampled_from(["id", "kind", "needs", "type", "seconds", "items", "default", "at_most", "backoff", "x", "a b"])


@settings(max_examples=500)
@given(st.data())
def test_both_agree_on_changed_documents(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(list(places(document))))
        change = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "replace":
            container[key] = data.draw(values)
        elif change == "remove" and document:
            del container[key]
        elif isinstance(container, dict):
            container[data.draw(keys)] = data.draw(values)
        if not list(places(document)):
            break
    assert bool(ours(document)) == (not VALIDATOR.is_valid(document)), document
