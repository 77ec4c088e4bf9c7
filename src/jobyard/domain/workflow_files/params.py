"""The params of a run, checked and completed with defaults, and the platform that they lead to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jobyard.domain.options import check_name
from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.evaluation import ReferenceScope
from jobyard.domain.workflow_files.problems import FileProblem
from jobyard.domain.workflow_files.schema import Schema
from jobyard.domain.workflow_files.schema_check import check
from jobyard.domain.workflow_files.templates import evaluate
from jobyard.errors import BadOption, ExpressionError, did_you_mean


def check_params(definition: WorkflowDefinition, given: Any) -> dict[str, Any]:
    """The params of a run with their defaults.

    Raises BadOption for the first invalid one, with the other errors in `others`; `option` is a path such as
    `params/limit`, so that it becomes a JSON pointer into the request. Messages show no values: they may be secret.
    """
    problems = list(check(definition.params_schema, given, {}, shows_values=False))
    if problems:
        first, *rest = map(_as_option, problems)
        first.others = tuple(rest)
        raise first
    found = {param.name: param.default.value for param in definition.params if param.default is not None}
    for param in definition.params:
        if param.name in given:
            found[param.name] = _whole(given[param.name], param.schema)
    return found


def _as_option(problem: FileProblem) -> BadOption:
    name = "params" + problem.pointer.replace("/", ".").replace("~1", "/").replace("~0", "~")
    return BadOption(f"{name} {problem.message}", option="params" + problem.pointer)


def _whole(value: Any, schema: Schema) -> Any:
    """JSON does not tell 5.0 from 5: where a whole number is declared, the handler gets one."""
    if schema.get("type") == "integer":
        return int(value)
    if schema.get("type") == "array" and "items" in schema:
        return [_whole(each, schema["items"]) for each in value]
    return value


def platform_of(
    definition: WorkflowDefinition, params: Mapping[str, Any], known: Collection[str] | None = None
) -> str | None:
    """The platform that a run with these checked params belongs to; None if the file names none. Raises BadOption."""
    if definition.platform is None:
        return None
    try:
        name = evaluate(definition.platform, ReferenceScope({"params": dict(params)}, {}))
    except ExpressionError as error:
        raise BadOption(f"Cannot derive the platform of {definition.id}: {error}", option="params") from None
    if not isinstance(name, str) or (known is not None and name not in known):
        listed = "" if known is None else f" Known platforms: {', '.join(known)}."
        hint = did_you_mean(name[:100], known or ()) if isinstance(name, str) else ""
        message = f"The params lead to a platform of {definition.id} that is unknown.{listed}{hint}"
        raise BadOption(message, option="params")
    return check_name("platform", name)
