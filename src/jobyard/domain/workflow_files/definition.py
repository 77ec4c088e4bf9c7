"""A workflow as its file defines it, with all references parsed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.retry import Backoff
from jobyard.domain.workflow_files.nodes import Constant, Expression
from jobyard.domain.workflow_files.schema import DEFAULT_AT_MOST, DEFAULT_TIMEOUT_SECONDS, Schema
from jobyard.domain.workflow_files.source import Format
from jobyard.domain.workflow_files.templates import Template


class OnItemFailure(StrEnum):
    FAIL = "fail"  # the step fails, and no further item starts
    CONTINUE = "continue"  # the other items run; the output has {"error": …} in place of the failed one


class StepDefinition(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    description: str = ""
    needs: tuple[str, ...] = ()
    input: Template = Constant({})
    when: Expression | None = None
    for_each: Template | None = None
    at_most: int = DEFAULT_AT_MOST
    on_item_failure: OnItemFailure = OnItemFailure.FAIL
    max_attempts: int | None = None  # None: as the handler declares it
    backoff: Backoff | None = None
    timeout_seconds: float | None = None


class ParamDefinition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: Schema  # a JSON Schema of its value
    required: bool
    default: Constant | None = None
    description: str = ""


class WorkflowDefinition(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: int = 1
    description: str = ""
    platform: Template | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    params: tuple[ParamDefinition, ...] = ()
    steps: tuple[StepDefinition, ...]
    on_failure: tuple[StepDefinition, ...] = ()
    output: Template = Constant(None)
    file: str = ""
    text: str = ""  # of the file; parsed again, it gives an equal definition
    text_format: Format = Format.JSON
    digest: str = ""  # SHA-256 of the text

    def all_steps(self) -> Iterator[StepDefinition]:
        yield from self.steps
        yield from self.on_failure

    @property
    def params_schema(self) -> dict[str, Any]:
        """A JSON Schema of the params of a run."""
        return {
            "type": "object",
            "properties": {
                param.name: {
                    **param.schema,
                    **({"description": param.description} if param.description else {}),
                    **({"default": param.default.value} if param.default is not None else {}),
                }
                for param in self.params
            },
            "required": [param.name for param in self.params if param.required],
            "additionalProperties": False,
        }
