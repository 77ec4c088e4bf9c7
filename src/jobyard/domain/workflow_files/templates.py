"""Templates: JSON values of a workflow file whose texts may hold `${…}`, compiled once, before any value is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from jobyard.domain.workflow_files.evaluation import ReferenceScope, evaluate_operand, number_text, type_name
from jobyard.domain.workflow_files.expressions import parse_reference
from jobyard.domain.workflow_files.nodes import Constant, Operand, Reference, as_text
from jobyard.domain.workflow_files.problems import pointer
from jobyard.errors import ExpressionError

# Without it, a short file that names a long text often could fill the memory.
MAX_TEXT = 1 << 20


class TextTemplate(msgspec.Struct, frozen=True):
    """Text with references in it."""

    parts: tuple[str | Operand, ...]


class ListTemplate(msgspec.Struct, frozen=True):
    items: tuple[Template, ...]


class ObjectTemplate(msgspec.Struct, frozen=True):
    """Keys are literal; only values are templates."""

    members: tuple[tuple[str, Template], ...]


Template: TypeAlias = Constant | Reference | TextTemplate | ListTemplate | ObjectTemplate
# Takes the JSON pointer of a text and what is wrong with it.
Report: TypeAlias = Callable[[str, str], None]


def compile_template(value: Any, at: str, report: Report) -> Template:
    """The template of a JSON value that stands at a JSON pointer; each invalid text is reported."""
    match value:
        case str():
            try:
                return compile_text(value)
            except ExpressionError as error:
                report(at, str(error))
                return Constant(value)
        case list():
            items = tuple(compile_template(item, pointer(at, index), report) for index, item in enumerate(value))
            if all(isinstance(item, Constant) for item in items):
                return Constant([item.value for item in items if isinstance(item, Constant)])
            return ListTemplate(items)
        case dict():
            members = tuple((key, compile_template(each, pointer(at, key), report)) for key, each in value.items())
            if all(isinstance(each, Constant) for _, each in members):
                return Constant({key: each.value for key, each in members if isinstance(each, Constant)})
            return ObjectTemplate(members)
        case _:
            return Constant(value)


def compile_text(text: str) -> Template:
    """Text with references: `${…}` alone keeps its type, `$${` is a literal `${`. Raises ExpressionError.

    >>> compile_text("${params.url}")
    Reference(root='params', keys=('url',), default=None)
    >>> compile_text("costs $5, written $${x}")
    Constant(value='costs $5, written ${x}')
    """
    parts: list[str | Operand] = []
    literal: list[str] = []
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            literal += (text[at : found - 1], "${")
            at = found + 2
            continue
        literal.append(text[at:found])
        operand, at = parse_reference(text, found + 2)
        if any(literal):
            parts.append("".join(literal))
        literal = []
        parts.append(operand)
    literal.append(text[at:])
    if any(literal):
        parts.append("".join(literal))
    match parts:
        case []:
            return Constant("")
        case [str() as only]:
            return Constant(only)
        case [Constant() | Reference() as only]:
            return only
    return TextTemplate(tuple(parts))


def evaluate(template: Template, scope: ReferenceScope) -> Any:
    """The value of a template. Values are not copied: do not change them. Raises ExpressionError."""
    match template:
        case TextTemplate(parts):
            return _joined(parts, scope)
        case ListTemplate(items):
            return [evaluate(item, scope) for item in items]
        case ObjectTemplate(members):
            return {key: evaluate(each, scope) for key, each in members}
        case _:
            return evaluate_operand(template, scope)


def _joined(parts: tuple[str | Operand, ...], scope: ReferenceScope) -> str:
    found: list[str] = []
    length = 0
    for part in parts:
        found.append(part if isinstance(part, str) else _as_text(part, scope))
        length += len(found[-1])
        if length > MAX_TEXT:
            raise ExpressionError(f"The text is longer than {MAX_TEXT:,} characters with its references.")
    return "".join(found)


def _as_text(operand: Operand, scope: ReferenceScope) -> str:
    value = evaluate_operand(operand, scope)
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
    raise ExpressionError(
        f"Cannot put {as_text(operand)} into text: it is {type_name(value)}. Use the reference alone, without text."
    )


def operands(template: Template, at: str) -> Iterator[tuple[str, Operand]]:
    """Each operand with the JSON pointer of its text."""
    match template:
        case TextTemplate(parts):
            yield from ((at, part) for part in parts if not isinstance(part, str))
        case ListTemplate(items):
            for index, item in enumerate(items):
                yield from operands(item, pointer(at, index))
        case ObjectTemplate(members):
            for key, each in members:
                yield from operands(each, pointer(at, key))
        case Constant() | Reference():
            yield at, template
