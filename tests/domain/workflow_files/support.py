"""Workflow documents and strategies that several tests use."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.evaluation import ReferenceScope
from jobyard.domain.workflow_files.expressions import ROOTS
from jobyard.domain.workflow_files.nodes import (
    AllOf,
    AnyOf,
    Compare,
    Constant,
    Exists,
    Expression,
    Not,
    Operator,
    Reference,
)
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.errors import InvalidWorkflow

Document = dict[str, Any]

SCAN: Document = {
    "id": "scan",
    "version": 3,
    "description": "Scan the products of a shop.",
    "platform": "${params.platform}",
    "timeout_seconds": 1800,
    "params": {
        "platform": {"type": "string", "enum": ["ably", "kurly"], "description": "The shop."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
        "urls": {"type": "array", "items": {"type": "string"}, "required": False},
    },
    "steps": [
        {"id": "extract", "kind": "extract_urls", "when": "not exists(params.urls)", "input": {"n": "${params.limit}"}},
        {
            "id": "scan",
            "kind": "scan_product",
            "needs": ["extract"],
            "when": "steps.extract.status in ['completed', 'skipped']",
            "for_each": "${steps.extract.output.urls ?? []}",
            "at_most": 5,
            "on_item_failure": "continue",
            "input": {"url": "${item}", "label": "page ${index} of ${run.id}"},
            "retry": {"max_attempts": 3, "backoff": {"type": "exponential", "base_seconds": 1}},
            "timeout_seconds": 60,
        },
        {"id": "store", "kind": "store", "needs": ["scan"], "input": {"rows": "${steps.scan.output}"}},
    ],
    "on_failure": [{"id": "notify", "kind": "notify", "input": {"text": "${failure.step}: ${failure.error}"}}],
    "output": {"stored": "${steps.store.output}", "platform": "${run.platform}"},
}


def parsed(document: Any, **words: Any) -> WorkflowDefinition:
    return parse_workflow(json.dumps(document), file="scan.json", **words)


def problems(document: Any, **words: Any) -> list[str]:
    """The lines of the error, without the name of the file."""
    try:
        parsed(document, **words)
    except InvalidWorkflow as error:
        return [line.removeprefix("scan.json: ") for line in error.problems]
    return []


def scope(params: Any = None, steps: Any = None, **roots: Any) -> ReferenceScope:
    return ReferenceScope({"params": {} if params is None else params, **roots}, steps or {})


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,5}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
integers = st.integers(-(1 << 63), (1 << 64) - 1)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    scalars | st.sampled_from(["${params.secret}", "$${x}", "${", "a.b"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts | names, below, max_size=3),
    max_leaves=8,
)
literals = st.recursive(scalars, lambda below: st.lists(below, max_size=3), max_leaves=5).map(Constant)
keys = (
    st.sampled_from(["a", "b", "output", "status", "x y", "__class__", "keys", "0"]) | names | texts | st.integers(0, 3)
)
paths = st.builds(Reference, st.sampled_from(ROOTS), st.lists(keys, max_size=4).map(tuple))
references = st.builds(Reference, st.sampled_from(ROOTS), st.lists(keys, max_size=4).map(tuple), st.none() | literals)
expressions: st.SearchStrategy[Expression] = st.recursive(
    literals | references | st.builds(Exists, paths),
    lambda below: (
        st.builds(Not, below)
        | st.builds(AllOf, st.lists(below, min_size=2, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(below, min_size=2, max_size=3).map(tuple))
        | st.builds(Compare, below, st.sampled_from(Operator), below)
    ),
    max_leaves=10,
)
