"""A workflow definition from the text of its file."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection
from typing import Any

import msgspec

from jobyard.domain.retry import Backoff, as_backoff
from jobyard.domain.workflow_files.definition import OnItemFailure, ParamDefinition, StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.expressions import parse_condition
from jobyard.domain.workflow_files.nodes import Constant
from jobyard.domain.workflow_files.problems import Problems, TooManyProblems
from jobyard.domain.workflow_files.schema import DEFAULT_AT_MOST, DEFAULT_TIMEOUT_SECONDS
from jobyard.domain.workflow_files.source import Format, TextError, check_text, parse
from jobyard.domain.workflow_files.templates import Template, compile_template
from jobyard.domain.workflow_files.validation import param_schema, validate
from jobyard.errors import InvalidWorkflow


def parse_workflow(
    text: str,
    *,
    file: str = "workflow",
    text_format: Format = Format.JSON,
    kinds: Collection[str] | None = None,
    platforms: Collection[str] | None = None,
) -> WorkflowDefinition:
    """The definition in a text. Raises InvalidWorkflow with every problem of it.

    Kinds and platforms are checked if the known ones are given. A stored text is parsed without them, because what is
    known may change while a run waits.
    """
    problems = Problems()
    try:
        document = parse(text, text_format)
    except TextError as error:
        raise InvalidWorkflow([f"{file}: {error}"]) from None
    with contextlib.suppress(TooManyProblems):
        check_text(document, problems)
        validate(document, problems, kinds, platforms)
    if problems:
        raise InvalidWorkflow(problems.lines(file, document))
    return WorkflowDefinition(
        id=document["id"],
        version=int(document.get("version", 1)),
        description=document.get("description", ""),
        platform=_template(document["platform"]) if "platform" in document else None,
        timeout_seconds=float(document.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)),
        params=tuple(_param(name, fields) for name, fields in document.get("params", {}).items()),
        steps=tuple(map(_step, document["steps"])),
        on_failure=tuple(map(_step, document.get("on_failure", ()))),
        output=_template(document.get("output")),
        file=file,
        text=text,
        text_format=text_format,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def _param(name: str, fields: dict[str, Any]) -> ParamDefinition:
    return ParamDefinition(
        name=name,
        schema=param_schema(fields),
        required=fields.get("required", "default" not in fields),
        default=Constant(fields["default"]) if "default" in fields else None,
        description=fields.get("description", ""),
    )


def _step(fields: dict[str, Any]) -> StepDefinition:
    retry = fields.get("retry", {})
    return StepDefinition(
        id=fields["id"],
        kind=fields["kind"],
        description=fields.get("description", ""),
        needs=tuple(fields.get("needs", ())),
        input=_template(fields.get("input", {})),
        when=parse_condition(fields["when"]) if "when" in fields else None,
        for_each=_template(fields["for_each"]) if "for_each" in fields else None,
        at_most=int(fields.get("at_most", DEFAULT_AT_MOST)),
        on_item_failure=OnItemFailure(fields.get("on_item_failure", OnItemFailure.FAIL)),
        max_attempts=int(retry["max_attempts"]) if "max_attempts" in retry else None,
        backoff=_backoff(retry["backoff"]) if "backoff" in retry else None,
        timeout_seconds=float(fields["timeout_seconds"]) if "timeout_seconds" in fields else None,
    )


def _backoff(value: Any) -> Backoff:
    return msgspec.convert(value, Backoff) if isinstance(value, dict) else as_backoff(value)


def _template(value: Any) -> Template:
    def report(at: str, message: str) -> None:
        raise AssertionError(f"{at}: {message}")  # it was validated

    return compile_template(value, "", report)
