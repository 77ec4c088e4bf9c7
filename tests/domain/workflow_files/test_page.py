"""The page about workflow files shows files that are valid, and messages as they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.domain.workflow_files.support import scope
from tests.house.repository import DOCS, Block, blocks, rows, section

from jobyard.domain.workflow_files.expressions import parse_condition
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.schema import SCHEMA
from jobyard.domain.workflow_files.source import Format, parse
from jobyard.domain.workflow_files.templates import compile_text, evaluate
from jobyard.errors import InvalidWorkflow

PAGE = DOCS / "howto/workflow-files.md"
BLOCKS = blocks(PAGE)
FILES = [
    block for block in BLOCKS if block.language in ("json", "yaml") and "steps" in block.text and "id" in block.text
]
[EXAMPLE] = [json.loads(block.text) for block in BLOCKS if '"on_failure"' in block.text]
KINDS = [step["kind"] for step in [*EXAMPLE["steps"], *EXAMPLE["on_failure"]]]


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.title)
def test_the_files_are_valid(block: Block) -> None:
    assert parse_workflow(block.text, text_format=Format(block.language), kinds=[*KINDS, "make_report"])


def test_the_messages_are_those_of_the_program() -> None:
    [shown] = [block.text.splitlines() for block in BLOCKS if block.mark == "problems"]
    document = json.loads(json.dumps(EXAMPLE))
    document["steps"][0]["kind"] = "extract_url"
    document["steps"][2]["for_each"] = "${steps.extarct.output.urls}"
    document["steps"][2]["timeout"] = document["steps"][2].pop("timeout_seconds")
    with pytest.raises(InvalidWorkflow) as caught:
        parse_workflow(json.dumps(document), file="workflows/scan.json", kinds=KINDS)
    assert list(caught.value.problems) == shown


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("The file", SCHEMA),
        ("Params", SCHEMA["$defs"]["param"]),
        ("Steps", SCHEMA["$defs"]["step"]),
    ],
)
def test_every_key_is_in_its_table(heading: str, schema: Any) -> None:
    table = rows(section(PAGE.read_text("utf-8"), heading))
    keys = [key for row in table for key in re.findall(r"`(\w+)`", row[0])]
    assert sorted(keys) == sorted(schema["properties"].keys() - {"$schema"})
    required = {key for row in table for key in re.findall(r"`(\w+)`", row[0]) if "required" in row[1].lower()[:8]}
    assert required == set(schema["required"])


def test_the_table_of_references_says_what_they_give() -> None:
    params = {"limit": 100, "shop": {"full name": "Ably"}}
    where = scope(params, {"extract": {"status": "completed", "output": {"urls": ["first"]}}}, index=0)
    cells = [row[0] for row in rows(section(PAGE.read_text("utf-8"), "References"))[:7]]
    shown = [text for cell in cells for text in re.findall(r'`("(?:[^"\\]|\\.)*")`', cell)]
    found = [evaluate(compile_text(json.loads(text)), where) for text in shown]
    assert found == [100, "first", "page 0 of 100", "Ably", "Ably", "none", "${params.limit}", "$100"]


def test_the_conditions_are_valid() -> None:
    [shown] = [block.text for block in BLOCKS if block.text.startswith("when:")]
    assert parse_condition(parse(shown, Format.YAML)["when"])
    for text in re.findall(r'"when": "([^"]+)"', PAGE.read_text("utf-8")):
        assert parse_condition(text)
