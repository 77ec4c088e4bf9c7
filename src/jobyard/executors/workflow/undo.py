"""Undo steps of a workflow, and how they are carried over when it continues as new."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from jobyard.domain.retry import Backoff
from jobyard.errors import BadInput, NotPossible
from jobyard.executors.python.annotations import decoder_of
from jobyard.executors.python.handlers import parameter_types
from jobyard.executors.python.payload import to_json
from jobyard.executors.workflow.records import MAX_RESULT_BYTES, PART
from jobyard.executors.workflow.steps import StepOptions


class Compensation(msgspec.Struct, frozen=True):
    """An undo step, to run when the workflow fails for good or is cancelled."""

    key: str
    name: str
    function: Callable[[], Any]
    options: StepOptions


class StoredCompensation(msgspec.Struct, frozen=True):
    """An undo step as the history holds it: the function by its import path, the arguments as JSON."""

    name: str
    module: str
    qualified_name: str
    arguments: msgspec.Raw
    retry: int
    timeout_seconds: float | None
    backoff: Backoff


def carry(compensations: list[Compensation]) -> msgspec.Raw:
    """Encode undo steps for the next run. Raises NotPossible for a function that cannot be found by its name."""
    return msgspec.Raw(msgspec.json.encode([_carried(each) for each in compensations]))


def _carried(compensation: Compensation) -> StoredCompensation:
    given = compensation.function
    function = given.func if isinstance(given, functools.partial) else given
    args = given.args if isinstance(given, functools.partial) else ()
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or "<" in name or _find(module, name) is not function:
        raise NotPossible(
            f"Cannot continue as new: the undo step {compensation.name} must be a function of a module, so that the "
            "next run finds it. Lambdas, methods and inner functions are not."
        )
    options = compensation.options
    arguments = msgspec.Raw(to_json(list(args), f"arguments of undo step {compensation.name}", MAX_RESULT_BYTES))
    return StoredCompensation(
        compensation.name, module, name, arguments, options.retry, options.timeout_seconds, options.backoff
    )


def restore(data: msgspec.Raw) -> list[Compensation]:
    """The undo steps that an earlier run has carried over."""
    carried = msgspec.json.decode(data, type=list[StoredCompensation])
    return [_restored(number, each) for number, each in enumerate(carried, start=1)]


def carried_names(data: msgspec.Raw) -> list[str]:
    return [each.name for each in msgspec.json.decode(data, type=list[StoredCompensation])]


def _restored(number: int, carried: StoredCompensation) -> Compensation:
    function = _find(carried.module, carried.qualified_name)
    if function is None:
        path = f"{carried.module}.{carried.qualified_name}"
        raise BadInput(f"Cannot find {path}, an undo step of this workflow. Deploy the code that has it, and retry.")
    values = msgspec.json.decode(carried.arguments, type=list[msgspec.Raw])
    types = [*parameter_types(function).values()]
    types += [Any] * (len(values) - len(types))
    args = [decoder_of(hint)(bytes(value)) for value, hint in zip(values, types, strict=False)]
    options = StepOptions(carried.retry, carried.timeout_seconds, carried.backoff)
    key = f"carried{PART}{number}"
    return Compensation(key, carried.name, functools.partial(function, *args), options)


def _find(module: str, name: str) -> Callable[..., Any] | None:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if callable(found) else None
