"""Validation of a parsed workflow file beyond its schema: references, needs, kinds, params, the platform.

It reports every problem, also in a file whose structure is wrong, so each check looks only at values of its type.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jobyard.domain.options import check_name
from jobyard.domain.workflow_files.evaluation import ReferenceScope
from jobyard.domain.workflow_files.expressions import parse_condition
from jobyard.domain.workflow_files.graph import StepGraph
from jobyard.domain.workflow_files.nodes import Constant, Reference
from jobyard.domain.workflow_files.problems import Problems, pointer
from jobyard.domain.workflow_files.references import ReferenceContext, references, wrong_condition, wrong_reference
from jobyard.domain.workflow_files.schema import PARAM_TYPES, SCHEMA, Schema
from jobyard.domain.workflow_files.schema_check import check
from jobyard.domain.workflow_files.templates import Template, compile_template, evaluate, operands
from jobyard.errors import BadOption, ExpressionError, did_you_mean

PARAM_KEYWORDS = ("type", "enum", "minimum", "maximum", "items")
# Values of an enum that are compared with the platforms.
MAX_ENUM = 1_000
_NUMERIC = ("integer", "number")


class HandlerParameters(NamedTuple):
    """The parameters of a handler, with which the input of its steps is compared."""

    names: tuple[str, ...]
    required: tuple[str, ...] = ()


class _Step(NamedTuple):
    at: str
    id: str
    fields: dict[str, Any]
    is_on_failure: bool


def validate(
    document: Any, problems: Problems, kinds: Collection[str] | None, platforms: Collection[str] | None
) -> None:
    """Add all problems of a document; kinds and platforms are checked against those that are known, if given.

    If `kinds` is a mapping to HandlerParameters, the input of steps is checked against them.
    """
    for problem in check(SCHEMA, document, SCHEMA):
        problems.add(problem.pointer, problem.message)
    if isinstance(document, dict):
        _Validation(document, problems, kinds, platforms).run()


def param_schema(fields: dict[str, Any]) -> Schema:
    """The JSON Schema of a param's value, without the keys that are about the param."""
    schema = {key: fields[key] for key in PARAM_KEYWORDS if key in fields}
    if isinstance(schema.get("items"), dict):
        schema["items"] = param_schema(schema["items"])
    return schema


class _Validation:
    def __init__(
        self,
        document: dict[str, Any],
        problems: Problems,
        kinds: Collection[str] | None,
        platforms: Collection[str] | None,
    ) -> None:
        self._document = document
        self._problems = problems
        self._kinds = kinds
        self._platforms = platforms
        params = document.get("params")
        self._params: dict[str, Any] = params if isinstance(params, dict) else {}
        self._steps = [*_steps(document, "steps"), *_steps(document, "on_failure")]
        self._ids = dict.fromkeys(step.id for step in self._steps if step.id)
        self._main = {step.id for step in self._steps if not step.is_on_failure}
        needs: dict[str, Iterable[str]] = {}
        for step in self._steps:
            if step.id:
                needs.setdefault(step.id, _needs(step))
        self._graph = StepGraph(needs)

    def run(self) -> None:
        for name, fields in self._params.items():
            if isinstance(fields, dict):
                self._param(pointer("/params", name), fields)
        self._platform()
        self._unique_ids()
        for step in self._steps:
            self._step(step)
        for cycle in self._graph.cycles():
            at = next(step.at for step in self._steps if step.id == cycle[0])
            self._problems.add(pointer(at, "needs"), f"makes a cycle: {' needs '.join(cycle)}. Remove one of them.")
        self._template("/output", self._document.get("output"), self._place(("params", "steps", "run"), self._main))

    def _param(self, at: str, fields: dict[str, Any]) -> None:
        self._value_rules(at, fields)
        if "default" not in fields:
            return
        if fields.get("required") is True:
            self._problems.add(pointer(at, "required"), "is true although there is a default. Remove one of them.")
        if not any(check(SCHEMA["$defs"]["param"], fields, SCHEMA)):
            for problem in check(param_schema(fields), fields["default"], {}, pointer(at, "default")):
                self._problems.add(problem.pointer, problem.message)

    def _value_rules(self, at: str, fields: dict[str, Any]) -> None:
        kind = fields.get("type")
        if kind not in PARAM_TYPES:
            return  # reported by the schema
        for key in ("minimum", "maximum"):
            if key in fields and kind not in _NUMERIC:
                self._problems.add(pointer(at, key), "is only allowed with the type integer or number.")
        if "items" in fields and kind != "array":
            self._problems.add(pointer(at, "items"), "is only allowed with the type array.")
        if isinstance(fields.get("items"), dict):
            self._value_rules(pointer(at, "items"), fields["items"])

    def _platform(self) -> None:
        value = self._document.get("platform")
        if not isinstance(value, str):
            return
        template = self._template("/platform", value, self._place(("params",)))
        if not isinstance(template, Constant):
            self._derived_platforms(template)
            return
        try:
            check_name("platform", template.value)
        except BadOption:
            self._problems.add("/platform", "must be a name of printable characters.")
            return
        if self._platforms is not None and template.value not in self._platforms:
            hint = did_you_mean(template.value, self._platforms)
            known = ", ".join(self._platforms)
            self._problems.add("/platform", f'is unknown: "{template.value}". Known platforms: {known}.{hint}')

    def _derived_platforms(self, template: Template) -> None:
        """The values of an enum that lead to an unknown platform, if the platform is derived from that param alone."""
        used = [each for _, each in operands(template, "") if isinstance(each, Reference)]
        names = {each.keys[0] if each.root == "params" and each.keys else None for each in used}
        name = names.pop() if len(names) == 1 else None
        fields = self._params.get(name) if isinstance(name, str) else None
        values = fields.get("enum") if isinstance(fields, dict) else None
        if self._platforms is None or not isinstance(values, list):
            return
        for index, value in enumerate(values[:MAX_ENUM]):
            try:
                platform = evaluate(template, ReferenceScope({"params": {name: value}}, {}))
            except ExpressionError:
                continue  # a run with it is told
            if not isinstance(platform, str) or platform not in self._platforms:
                hint = did_you_mean(str(platform)[:100], self._platforms)
                self._problems.add(
                    pointer("/params", str(name), "enum", index),
                    f'leads to the platform "{str(platform)[:100]}", which is unknown. '
                    f"Known platforms: {', '.join(self._platforms)}.{hint}",
                )

    def _unique_ids(self) -> None:
        first: dict[str, str] = {}
        for step in self._steps:
            if step.id and first.setdefault(step.id, step.at) != step.at:
                self._problems.add(pointer(step.at, "id"), f'is "{step.id}", as that of {first[step.id]}. Rename one.')

    def _step(self, step: _Step) -> None:
        fields, at = step.fields, step.at
        self._kind(step)
        self._check_needs(step)
        ended = self._ended_before(step)
        roots = ("params", "steps", "run", *(("failure",) if step.is_on_failure else ()))
        place = self._place(roots, ended, step)
        if isinstance(fields.get("when"), str):
            self._condition(pointer(at, "when"), fields["when"], place)
        if "for_each" in fields:
            found = self._template(pointer(at, "for_each"), fields["for_each"], place)
            self._only_reference(pointer(at, "for_each"), fields["for_each"], found, list)
            place = self._place((*roots, "item", "index"), ended, step)
        if "input" in fields:
            found = self._template(pointer(at, "input"), fields["input"], place)
            self._only_reference(pointer(at, "input"), fields["input"], found, dict)
        self._parameters(step)

    def _ended_before(self, step: _Step) -> Container[str]:
        """The steps that have always ended before this one."""
        if "needs" in step.fields and not self._are_needs_known(step):
            return self._ids  # what is meant is unknown, and reported; each reference would be a second problem
        before = self._graph.before(step.id)
        return _Either(self._main, before) if step.is_on_failure else before

    def _are_needs_known(self, step: _Step) -> bool:
        given = step.fields["needs"]
        return isinstance(given, list) and all(isinstance(need, str) and need in self._ids for need in given)

    def _kind(self, step: _Step) -> None:
        kind = step.fields.get("kind")
        if self._kinds is not None and isinstance(kind, str) and kind and kind not in self._kinds:
            hint = did_you_mean(kind[:100], self._kinds) or " Declare it in the application."
            self._problems.add(pointer(step.at, "kind"), f'is "{kind[:100]}", for which no handler is declared.{hint}')

    def _parameters(self, step: _Step) -> None:
        """Compare the names of the input with those of the handler. An input that is one reference is not known yet."""
        kind, given = step.fields.get("kind"), step.fields.get("input", {})
        found = self._kinds.get(kind) if isinstance(self._kinds, Mapping) and isinstance(kind, str) else None
        if not isinstance(found, HandlerParameters) or not isinstance(given, dict):
            return
        signature = f"{kind}({', '.join(found.names)})"
        at = pointer(step.at, "input")
        unknown = [name for name in given if name not in found.names]
        for name in unknown:
            hint = did_you_mean(name[:100], [each for each in found.names if each not in given]) or " Remove it."
            self._problems.add(pointer(at, name), f"is not a parameter of {signature}.{hint}")
        for name in found.required:
            if name not in given:
                where = at if "input" in step.fields else step.at
                self._problems.add(where, f"needs {name}, a parameter of {signature}. Add it to the input.")

    def _check_needs(self, step: _Step) -> None:
        for need, at in _needs(step).items():
            if need not in self._ids:
                hint = did_you_mean(need[:100], self._ids)
                self._problems.add(at, f'is "{need[:100]}", and there is no such step.{hint}')
            elif step.is_on_failure and need in self._main:
                self._problems.add(at, f'is "{need}", which has always ended before on_failure steps. Remove it.')
            elif not step.is_on_failure and need not in self._main:
                self._problems.add(at, f'is "{need}", which runs only after a failure. Remove it.')

    def _place(self, roots: Collection[str], ended: Container[str] = (), step: _Step | None = None) -> ReferenceContext:
        return ReferenceContext(
            params=self._params,
            roots=roots,
            steps=self._ids,
            ended=ended,
            step=step.id if step is not None else "",
            needs=pointer(step.at, "needs") if step is not None else "",
        )

    def _template(self, at: str, value: Any, place: ReferenceContext) -> Template:
        template = compile_template(value, at, self._problems.add)
        for where, operand in operands(template, at):
            if isinstance(operand, Reference):
                self._reference(where, operand, place)
        return template

    def _reference(self, at: str, reference: Reference, place: ReferenceContext) -> None:
        wrong = wrong_reference(reference, place)
        if wrong is not None:
            self._problems.add(at, wrong)

    def _condition(self, at: str, text: str, place: ReferenceContext) -> None:
        try:
            expression = parse_condition(text)
        except ExpressionError as error:
            self._problems.add(at, str(error))
            return
        for wrong in wrong_condition(expression):
            self._problems.add(at, wrong)
        for reference in references(expression):
            self._reference(at, reference, place)

    def _only_reference(self, at: str, value: Any, template: Template, wanted: type) -> None:
        """A text must be one reference; a default or a literal in it must have the wanted type."""
        if not isinstance(value, str):
            return
        name = "a list" if wanted is list else "an object"
        constant = template.default if isinstance(template, Reference) else template
        if isinstance(template, Reference) and constant is None:
            return
        if not isinstance(constant, Constant) or not isinstance(constant.value, wanted):
            example = "${steps.extract.output}"
            self._problems.add(at, f"must be {name}, or one reference to {name}, such as {example}.")


class _Either(Container[str]):
    """What is in one of two sets."""

    def __init__(self, one: Container[str], other: Container[str]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, step: object) -> bool:
        return step in self._one or step in self._other


def _steps(document: dict[str, Any], section: str) -> Iterator[_Step]:
    found = document.get(section)
    for index, fields in enumerate(found if isinstance(found, list) else ()):
        if isinstance(fields, dict):
            name = fields.get("id")
            yield _Step(pointer("", section, index), name if isinstance(name, str) else "", fields, section != "steps")


def _needs(step: _Step) -> dict[str, str]:
    """The JSON pointer of each id that the step needs."""
    found = step.fields.get("needs")
    needs = [each if isinstance(each, str) else "" for each in found] if isinstance(found, list) else []
    return {need: pointer(step.at, "needs", index) for index, need in enumerate(needs) if need}
