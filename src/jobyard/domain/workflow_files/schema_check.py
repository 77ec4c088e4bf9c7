"""Checks a JSON value against a JSON Schema of the keywords that jobyard uses, with messages for people.

Messages are predicates: their subject is the value at the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from jobyard.domain.text import counted
from jobyard.domain.workflow_files.evaluation import equal, shown_value
from jobyard.domain.workflow_files.problems import FileProblem, pointer
from jobyard.domain.workflow_files.schema import Schema
from jobyard.errors import did_you_mean

NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description", "default"})
_SHOWN_WORDS = 20


# Around a part of a message that shows a value. JSON text cannot contain it.
_MARK = "\x00"
_MARKED = re.compile(f"{_MARK}[^{_MARK}]*{_MARK}")


def check(
    schema: Schema, value: Any, root: Schema, at: str = "", *, shows_values: bool = True
) -> Iterator[FileProblem]:
    """Each problem of a value; `root` is the schema that holds the definitions.

    Without `shows_values` the messages contain no part of the value but keys, because it may be a secret.
    """
    for problem in _check(schema, value, root, at):
        message = problem.message.replace(_MARK, "") if shows_values else _MARKED.sub("", problem.message)
        yield FileProblem(problem.pointer, message)


def _check(schema: Schema, value: Any, root: Schema, at: str = "") -> Iterator[FileProblem]:
    schema = _resolved(schema, root)
    if "type" in schema and not _has_type(value, schema["type"]):
        yield FileProblem(at, f"must be {NAMES[schema['type']]}{_not(value)}.")
        return
    if "enum" in schema and not any(equal(value, each) for each in schema["enum"]):
        yield FileProblem(at, _not_in_enum(schema["enum"], value))
        return
    if "anyOf" in schema:
        yield from _any_of(schema["anyOf"], value, root, at)
    match value:
        case dict():
            yield from _object(schema, value, root, at)
        case list():
            yield from _list(schema, value, root, at)
        case str():
            yield from _text(schema, value, at)
        case int() | float() if not isinstance(value, bool):
            yield from _number(schema, value, at)


def _resolved(schema: Schema, root: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    found: Schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return {**found, **schema}


def _has_type(value: Any, name: str) -> bool:
    match name:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _not(value: Any) -> str:
    return f"{_MARK}, not {_what(value)}{_MARK}"


def _what(value: Any) -> str:
    return shown_value(value) if not isinstance(value, str) else json.dumps(value[:50], ensure_ascii=False)


def _not_in_enum(known: list[Any], value: Any) -> str:
    shown = [json.dumps(each, ensure_ascii=False) for each in known[:_SHOWN_WORDS]]
    more = ", …" if len(known) > _SHOWN_WORDS else ""
    words = [each for each in known if isinstance(each, str)]
    hint = did_you_mean(value[:100], words) if isinstance(value, str) else ""
    return f"must be {'one of ' if len(known) > 1 else ''}{', '.join(shown)}{more}{_not(value)}.{hint}"


def _any_of(branches: list[Schema], value: Any, root: Schema, at: str) -> Iterator[FileProblem]:
    branches = [_resolved(branch, root) for branch in branches]
    fitting = [branch for branch in branches if _has_type(value, branch["type"])]
    if not fitting:
        names = list(dict.fromkeys(NAMES[branch["type"]] for branch in branches))
        yield FileProblem(at, f"must be {', '.join(names[:-1])} or {names[-1]}{_not(value)}.")
        return
    tags = [_tags(branch) for branch in fitting]
    if isinstance(value, dict) and all(tags):
        # Each branch has a `type` of its own, which tells which one was meant.
        known = [tag for words in tags for tag in words]
        fitting = [branch for branch, words in zip(fitting, tags, strict=True) if value.get("type") in words]
        if not fitting:
            message = _not_in_enum(known, value["type"]) if "type" in value else f"needs a type: {', '.join(known)}."
            yield FileProblem(pointer(at, "type") if "type" in value else at, message)
            return
    yield from min((list(_check(branch, value, root, at)) for branch in fitting), key=len)


def _tags(branch: Schema) -> list[str]:
    found: list[str] = branch.get("properties", {}).get("type", {}).get("enum", [])
    return found


def _object(schema: Schema, value: dict[str, Any], root: Schema, at: str) -> Iterator[FileProblem]:
    known: Schema = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key, each in value.items():
        if key in known:
            yield from _check(known[key], each, root, pointer(at, key))
            continue
        where = pointer(at, key)
        if "propertyNames" in schema:
            yield from (FileProblem(where, each.message) for each in _check(schema["propertyNames"], key, root))
        if others is False:
            hint = did_you_mean(key[:100], known) or f" Known keys: {', '.join(known)}."
            yield FileProblem(where, f"is an unknown key.{hint if known else ''}")
        elif others is not True:
            yield from _check(others, each, root, where)
    for key in schema.get("required", ()):
        if key not in value:
            description = known.get(key, {}).get("description", "")
            yield FileProblem(at, f'needs the key "{key}"{": " + description if description else "."}')
    for key, needed in schema.get("dependentRequired", {}).items():
        if key in value and not all(each in value for each in needed):
            yield FileProblem(pointer(at, key), f"is only allowed together with {' and '.join(needed)}.")


def _list(schema: Schema, value: list[Any], root: Schema, at: str) -> Iterator[FileProblem]:
    yield from _within(schema, "minItems", "maxItems", len(value), "item", at)
    if schema.get("uniqueItems"):
        seen: set[str] = set()
        for index, each in enumerate(value):
            text = json.dumps(each, sort_keys=True)
            if text in seen:
                yield FileProblem(
                    pointer(at, index), f"is given twice{_MARK}: {_what(each)}{_MARK}. Remove one of them."
                )
            seen.add(text)
    if "items" in schema:
        for index, each in enumerate(value):
            yield from _check(schema["items"], each, root, pointer(at, index))


def _text(schema: Schema, value: str, at: str) -> Iterator[FileProblem]:
    yield from _within(schema, "minLength", "maxLength", len(value), "character", at)
    # In a JSON Schema, $ matches at the end only; in Python also before a line break.
    if "pattern" in schema and not re.search(schema["pattern"].removesuffix("$") + r"\Z", value):
        yield FileProblem(at, f"must be a name such as fetch_page-2 (no spaces, a letter first){_not(value)}.")


def _number(schema: Schema, value: float, at: str) -> Iterator[FileProblem]:
    tests: dict[str, tuple[Callable[[Any], bool], str]] = {
        "minimum": (lambda least: value >= least, "at least"),
        "exclusiveMinimum": (lambda least: value > least, "more than"),
        "maximum": (lambda most: value <= most, "at most"),
    }
    for keyword, (holds, words) in tests.items():
        if keyword in schema and not holds(schema[keyword]):
            yield FileProblem(at, f"must be {words} {schema[keyword]}{_not(value)}.")


def _within(schema: Schema, least: str, most: str, size: int, what: str, at: str) -> Iterator[FileProblem]:
    if size < schema.get(least, 0):
        yield FileProblem(at, f"must have at least {counted(schema[least], what)}, not {size:,}.")
    if most in schema and size > schema[most]:
        yield FileProblem(at, f"must have at most {counted(schema[most], what)}, not {size:,}.")
