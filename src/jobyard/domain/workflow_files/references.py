"""Which values a place of a workflow file may refer to, checked before any run."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

import msgspec

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
    as_text,
)
from jobyard.domain.workflow_files.step_state import StepStatus
from jobyard.errors import did_you_mean

# A step that can be referred to has always ended.
# Those that a step of the same run can see.
STATUSES = tuple(map(str, (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED)))
_STEP_MEMBERS = ("output", "status")
_RUN_MEMBERS = ("id", "platform", "started_at")
_FAILURE_MEMBERS = ("step", "error")


class ReferenceContext(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a file and what can be reached from it."""

    params: Collection[str]
    roots: Collection[str]
    steps: Collection[str] = ()  # all steps of the file
    ended: Container[str] = ()  # those that have always ended when the place is evaluated
    step: str = ""  # the step that the place belongs to, if any
    needs: str = ""  # JSON pointer of its needs


def wrong_reference(reference: Reference, place: ReferenceContext) -> str | None:
    """What is wrong with a reference at this place, and the remedy."""
    root, keys = reference.root, reference.keys
    if root not in place.roots:
        return _wrong_root(root, place)
    match root:
        case "params" if keys:
            return _unknown(root, keys[0], place.params, "Declare it in /params.")
        case "run":
            return _member(reference, 0, _RUN_MEMBERS)
        case "failure":
            return _member(reference, 0, _FAILURE_MEMBERS)
        case "steps":
            return _wrong_step(reference, place)
    return None


def _wrong_root(root: str, place: ReferenceContext) -> str:
    remedies = {
        "item": "It exists only in the input of a step with for_each.",
        "index": "It exists only in the input of a step with for_each.",
        "failure": "It exists only in on_failure steps.",
    }
    remedy = remedies.get(root, f"Only {', '.join(place.roots)} can be used here.")
    return f'cannot use "{root}" here. {remedy}'


def _wrong_step(reference: Reference, place: ReferenceContext) -> str | None:
    if not reference.keys:
        return 'must name a step after "steps", such as steps.extract.output.'
    step = reference.keys[0]
    if (wrong := _unknown("steps", step, place.steps, "There is no such step.")) is not None:
        return wrong
    if (wrong := _member(reference, 1, _STEP_MEMBERS)) is not None:
        return wrong
    if step in place.ended:
        return None
    if step == place.step:
        return f'refers to its own step, "{step}", which has not run yet.'
    if not place.needs:
        return f'refers to "steps.{step}", which may not have run.'
    return f'refers to "steps.{step}", which step "{place.step}" does not need. Add "{step}" to {place.needs}.'


def _unknown(root: str, key: str | int, known: Collection[str], otherwise: str) -> str | None:
    if key in known:
        return None
    path = as_text(Reference(root, (key,)))
    paths = [as_text(Reference(root, (each,))) for each in known]
    return f'refers to "{path[:100]}", which is unknown.{did_you_mean(path[:100], paths) or " " + otherwise}'


def _member(reference: Reference, position: int, known: tuple[str, ...]) -> str | None:
    key = reference.keys[position] if len(reference.keys) > position else None
    if key in known:
        return None
    before = as_text(Reference(reference.root, reference.keys[:position]))
    choices = " or ".join(f"{before}.{each}" for each in known)
    hint = did_you_mean(str(key)[:100], known) if key is not None else ""
    return f'refers to "{as_text(Reference(reference.root, reference.keys))[:100]}"; use {choices}.{hint}'


def wrong_condition(expression: Expression) -> Iterator[str]:
    """What can never work in a condition, whatever the values are."""
    if isinstance(expression, Constant) and not isinstance(expression.value, bool):
        yield f"must be true or false, not {as_text(expression)}."
    for each in _parts(expression):
        match each:
            case Compare(Reference("steps", keys), Operator.EQUAL | Operator.NOT_EQUAL, Constant(value)) if (
                keys[1:] == ("status",) and value not in STATUSES
            ):
                hint = did_you_mean(str(value)[:50], STATUSES)
                yield f"compares a status with {as_text(Constant(value))}; it is one of {', '.join(STATUSES)}.{hint}"


def references(expression: Expression) -> Iterator[Reference]:
    for each in _parts(expression):
        if isinstance(each, Exists):
            yield each.reference
        elif isinstance(each, Reference):
            yield each


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    match expression:
        case Not(operand):
            yield from _parts(operand)
        case AllOf(operands) | AnyOf(operands):
            for each in operands:
                yield from _parts(each)
        case Compare(left, _, right):
            yield from _parts(left)
            yield from _parts(right)
