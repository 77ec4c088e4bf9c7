"""Handlers: the functions that run jobs, by kind, and the payload type of each."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Park, Snooze
from jobyard.domain.type_words import mismatch
from jobyard.errors import BadInput, BadOption, UnknownKind
from jobyard.executors.python.annotations import (
    JSON_TYPES,
    Decode,
    UnserializableType,
    decode_other,
    decoder_of,
    is_carried_by_pydantic,
    pydantic_decoder,
)
from jobyard.executors.python.context import BaseContext, BlockingContext, Context
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, to_json

# A handler may return one of these instead of a result.
OUTCOMES = (Done, Failed, Snooze, Cancel, Handoff, Park)


class Handler:
    """A handler: its name (the kind), its function, and a payload type made from its signature."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        backoff_function: Callable[[int], float] | None = None,
        *,
        transactional: bool = False,
        is_workflow: bool = False,
    ) -> None:
        self.name = name
        self.function = function
        self.is_async = _is_async(name, function)
        self.is_workflow = is_workflow
        self.transactional = transactional  # completes its jobs in its own transactions
        self.backoff_function = backoff_function  # backoff function: failures so far to seconds
        parameters = list(inspect.signature(function).parameters.values())
        variadic = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if variadic:
            raise BadOption(f"Handler {name} cannot take {', '.join(variadic)}: a payload needs named parameters.")
        hints = _hints(function)
        self.takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if transactional and not self.takes_context:
            raise BadOption(f"Handler {name} is transactional: it needs a Context as its first parameter.")
        if is_workflow and not (self.takes_context and self.is_async):
            raise BadOption(
                f"Workflow {name} must be an async function with a WorkflowContext as its first parameter. "
                "Declare other functions with @yard.job."
            )
        if self.takes_context:
            hint = hints.get(parameters[0].name)
            _require_fitting_context(name, hint, is_async=self.is_async, is_workflow=is_workflow)
            parameters = parameters[1:]
        _require_known_types(name, parameters, hints)
        self.names = tuple(p.name for p in parameters)
        self.required_names = tuple(p.name for p in parameters if p.default is p.empty)
        self._positional = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self._decode = _decoder(name, parameters, hints)
        result_types = _result_types(hints.get("return", Any))
        self._decode_result = _result_decoder(name, result_types)
        # Values of exactly these types need no look at their JSON.
        self._fitting = frozenset(part for part in result_types if part in JSON_TYPES)
        # A transactional handler passes its result to ctx.complete; what it returns is ignored.
        self._any_fits = transactional or Any in result_types or object in result_types

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call: its arguments by name."""
        if len(args) > len(self._positional):
            raise BadInput(f"{self.name} takes {len(self._positional)} arguments, not {len(args)}.")
        payload = dict(zip(self._positional, args, strict=False))
        for name in kwargs:
            if name in payload:
                raise BadInput(f"{self.name} got multiple values for {name}.")
        payload.update(kwargs)
        return payload

    def encode(self, payload: Any, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
        """Encode a payload as JSON, and reject one that this handler cannot decode."""
        data = to_json(payload, f"payload of {self.name}", max_bytes)
        self.decode(data)
        return data

    def decode(self, payload: bytes) -> tuple[Any, ...]:
        try:
            values: tuple[Any, ...] = self._decode(payload)
        except (msgspec.ValidationError, BadInput) as error:
            why = mismatch(str(error))
            raise BadInput(f"The payload does not fit {self.name}({', '.join(self.names)}): {why}.") from error
        except RecursionError as error:
            raise BadInput(f"The payload of {self.name} is nested too deeply. Pass a flatter value.") from error
        except msgspec.DecodeError as error:
            raise BadInput(f"The payload of {self.name} is not JSON: {error}.") from error
        return values

    def call(self, context: Any, values: tuple[Any, ...]) -> Any:
        """Call the function with the values from `decode`."""
        split = len(self._positional)
        named = {} if split == len(values) else dict(zip(self.names[split:], values[split:], strict=True))
        if self.takes_context:
            return self.function(context, *values[:split], **named)
        return self.function(*values[:split], **named)

    def encode_result(self, value: Any, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
        """Encode a result as JSON, and reject one that cannot be read as the declared type."""
        data = to_json(value, f"result of {self.name}", max_bytes)
        if not self._any_fits and type(value) not in self._fitting:
            self.decode_result(data)
        return data

    def decode_result(self, result: bytes) -> Any:
        try:
            return self._decode_result(result)
        except (msgspec.ValidationError, BadInput) as error:
            why = mismatch(str(error))
            raise BadInput(
                f"The result of {self.name} does not fit its declared type: {why}. "
                "Return a value of that type, or correct the annotation."
            ) from error


class HandlerRegistry:
    """Handlers by kind. `builtin` ones are found, but not listed with those of the application."""

    def __init__(self, builtin: Iterable[Handler] = ()) -> None:
        self._handlers: dict[str, Handler] = {}
        self._builtin = {handler.name: handler for handler in builtin}

    def add(self, handler: Handler) -> None:
        known = self._handlers.get(handler.name)
        if known is not None and known.function is not handler.function:
            raise BadOption(f"Two handlers are named {handler.name}. Give one of them another name=….")
        self._handlers[handler.name] = handler

    def get(self, name: str) -> Handler:
        handler = self._handlers.get(name) or self._builtin.get(name)
        if handler is None:
            raise UnknownKind.of(name, self._handlers)
        return handler

    def known_kinds(self) -> frozenset[str]:
        """The kinds that have a handler, with those of jobyard itself."""
        return frozenset([*self._handlers, *self._builtin])

    def transactional(self) -> list[str]:
        return [name for name in self if self._handlers[name].transactional]

    def __contains__(self, name: str) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._handlers))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters and, as "return", of the result, without those that cannot be evaluated.

    One by one, since a name that exists only for the type checker must not hide the types of the others.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some of the functions written in C; a step may be one
        return {}
    annotations = {name: p.annotation for name, p in signature.parameters.items()}
    if not inspect.isclass(function):  # a step may be one, whose annotation is that of __init__
        annotations["return"] = signature.return_annotation
    names = _names_around(function)
    hints: dict[str, Any] = {}
    for name, annotation in annotations.items():
        if annotation is inspect.Parameter.empty:
            continue
        # Whatever evaluating a caller's text raises: NameError, SyntaxError, AttributeError, …
        with contextlib.suppress(Exception):
            hints[name] = get_type_hints(_Annotated({name: annotation}), names, include_extras=True)[name]
    return hints


class _Annotated:
    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _names_around(function: Callable[..., Any]) -> dict[str, Any]:
    """The global names that the annotations of a function, a partial or an object with `__call__` refer to."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return getattr(called, "__globals__", {})


def _require_known_types(name: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> None:
    for p in parameters:
        if p.annotation is not p.empty and p.name not in hints:
            shown = str(p.annotation).replace("typing.", "").strip("'\"")
            raise BadOption(
                f"Cannot declare {name} as a handler: the type of its parameter {p.name}, {shown}, cannot be found. "
                "Define or import it at the top level of the module, above the handler and not only for type checkers."
            )


def _is_async(name: str, function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; raises BadOption for what cannot be a handler."""
    if inspect.isclass(function):
        raise BadOption(f"Cannot declare {name} as a handler: it is a class. Declare a function.")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for each in (function, called):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise BadOption(f"Cannot declare {name} as a handler: it yields. Return its result instead.")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _require_fitting_context(name: str, hint: Any, *, is_async: bool, is_workflow: bool) -> None:
    if is_workflow and hint in (Context, BlockingContext):
        raise BadOption(f"Workflow {name} must take a WorkflowContext, not a {hint.__name__}.")
    if not is_workflow and isinstance(hint, type) and hint.__name__ == "WorkflowContext":
        raise BadOption(f"Handler {name} takes a WorkflowContext: declare it with @yard.workflow.")
    if is_async and hint is BlockingContext:
        raise BadOption(f"Handler {name} is async: its first parameter must be a Context, not a BlockingContext.")
    if not is_async and hint is Context:
        raise BadOption(f"Handler {name} is not async: its first parameter must be a BlockingContext, not a Context.")


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    """Whether the parameter is annotated as a context; without an annotation, whether its name says so."""
    hint = hints.get(parameter.name, parameter.annotation)
    if hint in (parameter.empty, Any):
        return parameter.name.lstrip("_") in ("ctx", "context", "")
    if isinstance(hint, str):  # a name that exists only for the type checker
        return hint.rpartition(".")[2] in ("Context", "BlockingContext", "WorkflowContext")
    return any(isinstance(each, type) and issubclass(each, BaseContext) for each in (hint, *get_args(hint)))


def _decoder(name: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> Callable[[bytes], Any]:
    fields: list[Any] = []
    models: list[tuple[int, Decode]] = []  # parameters that pydantic decodes, by position
    for index, p in enumerate(parameters):
        hint = hints.get(p.name, Any)
        try:
            if is_carried_by_pydantic(hint):
                models.append((index, pydantic_decoder(hint)))
                hint = msgspec.Raw
        except UnserializableType as error:
            raise BadOption(
                f"Cannot declare {name} as a handler: its parameter {p.name} is a {type_name(hint)}, and {error}. "
                f"{error.remedy}."
            ) from error
        field: tuple[Any, ...] = (p.name, hint)
        if p.default is not p.empty:
            field += (msgspec.field(default_factory=_always(p.default)),)
        fields.append(field)
    payload_type = msgspec.defstruct(
        name.title().replace(".", ""), fields, kw_only=True, forbid_unknown_fields=True, gc=False
    )
    decoder = msgspec.json.Decoder(payload_type, dec_hook=decode_other)
    if not models:
        return lambda data: msgspec.structs.astuple(decoder.decode(data))

    def decode(data: bytes) -> tuple[Any, ...]:
        values = list(msgspec.structs.astuple(decoder.decode(data)))
        for index, decode_model in models:
            if isinstance(values[index], msgspec.Raw):  # else it is the default
                try:
                    values[index] = decode_model(bytes(values[index]))
                except BadInput as error:
                    raise BadInput(str(error).replace(" - at `$", f" - at `$.{parameters[index].name}", 1)) from error
        return tuple(values)

    return decode


def type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def parameter_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotated types of a function's parameters, in order; Any where there is none."""
    hints = _hints(function)
    return {name: hints.get(name, Any) for name in inspect.signature(function).parameters}


def result_decoder(function: Callable[..., Any]) -> Callable[[bytes], Any]:
    """The decoder of the function's result, by its return annotation. Raises BadOption if it cannot be JSON."""
    name = getattr(function, "__name__", "function")
    return _result_decoder(name, _result_types(_hints(function).get("return", Any)))


def _result_types(hint: Any) -> list[Any]:
    """The types of results by a return annotation: outcomes in it are not part of them."""
    is_union = isinstance(hint, UnionType) or get_origin(hint) is Union
    parts = get_args(hint) if is_union else [type(None) if hint is None else hint]
    return [part for part in parts if part not in (*OUTCOMES, Never, NoReturn)] or [Any]


def _result_decoder(name: str, types: list[Any]) -> Callable[[bytes], Any]:
    hint: Any = Union[tuple(types)]  # noqa: UP007
    try:
        return decoder_of(hint)
    except UnserializableType as error:
        raise BadOption(
            f"Cannot use {name} as a handler or a step: its result is a {type_name(hint)}, and {error}. {error.remedy}."
        ) from error
