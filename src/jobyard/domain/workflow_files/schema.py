"""The JSON Schema of workflow files: the only description of their structure. Validation interprets it.

Editors use the copy in `workflow.schema.json`, which `python -m tests.house.make_docs` writes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jobyard.domain.options import MAX_ATTEMPTS, MAX_NAME, MAX_SECONDS
from jobyard.domain.workflow_files.nodes import NAME
from jobyard.domain.workflow_files.tokens import MAX_LENGTH

Schema: TypeAlias = dict[str, Any]

MAX_STEPS = 2000
MAX_ITEMS_AT_ONCE = 10_000
DEFAULT_AT_MOST = 10
DEFAULT_TIMEOUT_SECONDS = 3600.0
PARAM_TYPES = ("string", "integer", "number", "boolean", "array", "object")


def _object(required: tuple[str, ...], properties: Schema, **more: Any) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
        **more,
    }


def _text(most: int = 2000, least: int = 0) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def _seconds(least: str = "minimum") -> Schema:
    return {"type": "number", least: 0, "maximum": MAX_SECONDS}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


_NAME: Schema = {"type": "string", "pattern": f"^{NAME}$", "maxLength": 100}
_DELAYS: Schema = {"type": "array", "items": _seconds(), "minItems": 1, "maxItems": 100}
_BACKOFF: Schema = {
    "description": "The delay before each further attempt: seconds, a list of seconds, or an object with a type.",
    "anyOf": [
        _seconds(),
        _DELAYS,
        _object(("type", "seconds"), {"type": {"enum": ["fixed"]}, "seconds": _seconds()}),
        _object(("type", "seconds"), {"type": {"enum": ["delays"]}, "seconds": _DELAYS}),
        _object(
            ("type",),
            {
                "type": {"enum": ["exponential"]},
                "base_seconds": _seconds(),
                "factor": {"type": "number", "minimum": 0, "maximum": 1000},
                "max_seconds": _seconds(),
                "jitter": {"type": "number", "minimum": 0, "maximum": 1},
            },
        ),
    ],
}
_RETRY = _object(
    (),
    {
        "max_attempts": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_ATTEMPTS,
            "description": "How many times the step is attempted in all: 1 means no retry.",
        },
        "backoff": _BACKOFF,
    },
    description="How failed attempts are repeated; what is not given is as the handler declares it.",
)
_VALUE: Schema = {
    "type": {"enum": list(PARAM_TYPES), "description": f"One of {', '.join(PARAM_TYPES)}."},
    "description": _text(),
    "enum": {"type": "array", "minItems": 1, "maxItems": 1000, "description": "The only values that are allowed."},
    "minimum": {"type": "number"},
    "maximum": {"type": "number"},
    "items": {"$ref": "#/$defs/items", "description": "What each item of a list must be."},
}
_PARAM = _object(
    ("type",),
    {
        **_VALUE,
        "required": {
            "type": "boolean",
            "description": "Whether a run needs it. Without this key: yes, unless there is a default.",
        },
        "default": {"description": "The value if a run gives none."},
    },
)
_STEP = _object(
    ("id", "kind"),
    {
        "id": _described(_NAME, "The name of the step, unique in the file."),
        "kind": _described(_text(MAX_NAME, 1), "The kind of the handler that runs it."),
        "description": _text(),
        "needs": {
            "type": "array",
            "items": {"type": "string"},
            "uniqueItems": True,
            "description": "The ids of the steps that must end before it starts.",
        },
        "input": {
            "anyOf": [{"type": "object"}, {"type": "string"}],
            "description": "The parameters of the handler: an object, or one reference to an object.",
        },
        "when": _described(_text(MAX_LENGTH, 1), "A condition; if it is false, the step is skipped."),
        "for_each": {
            "anyOf": [{"type": "array"}, {"type": "string"}],
            "description": "Run the step once for each item: a list, or one reference to a list.",
        },
        "at_most": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_ITEMS_AT_ONCE,
            "default": DEFAULT_AT_MOST,
            "description": "How many items may run at the same time.",
        },
        "on_item_failure": {
            "enum": ["fail", "continue"],
            "default": "fail",
            "description": "Whether an item that fails makes the step fail, or the other items continue.",
        },
        "retry": {"$ref": "#/$defs/retry"},
        "timeout_seconds": _described(_seconds("exclusiveMinimum"), "How long one attempt may take."),
    },
    dependentRequired={"at_most": ["for_each"], "on_item_failure": ["for_each"]},
)
SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Jobyard workflow file",
    **_object(
        ("id", "steps"),
        {
            "$schema": _described(_text(), "The address of this schema, for editors."),
            "id": _described(_NAME, "The name of the workflow, unique among the files."),
            "version": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000_000,
                "default": 1,
                "description": "A number for people; a run keeps the text of its file.",
            },
            "description": _text(),
            "platform": _described(
                _text(MAX_LENGTH, 1), "The platform that runs it, or a text with references to params that gives it."
            ),
            "timeout_seconds": {
                **_seconds("exclusiveMinimum"),
                "default": DEFAULT_TIMEOUT_SECONDS,
                "description": "How long a run may take, without the time in which it waits for other jobs.",
            },
            "params": {
                "type": "object",
                "propertyNames": _NAME,
                "additionalProperties": {"$ref": "#/$defs/param"},
                "description": "The parameters of a run by name.",
            },
            "steps": {
                "type": "array",
                "items": {"$ref": "#/$defs/step"},
                "minItems": 1,
                "maxItems": MAX_STEPS,
                "description": "The steps of the workflow.",
            },
            "on_failure": {
                "type": "array",
                "items": {"$ref": "#/$defs/step"},
                "maxItems": MAX_STEPS,
                "description": "Steps that run only after a step has failed; then the run fails.",
            },
            "output": {"description": "The result of a run, with references to outputs of steps."},
        },
    ),
    "$defs": {"step": _STEP, "retry": _RETRY, "param": _PARAM, "items": _object(("type",), _VALUE)},
}
