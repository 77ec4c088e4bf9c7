"""Label and field selectors, parsed and matched as the API server does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jobyard.demo.fake_kubernetes.errors import JsonObject, bad_request

Matcher = Callable[[JsonObject], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:"
    rf"(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<set_key>{_KEY})\s+(?P<set_operator>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|(?P<present_key>{_KEY})"
    rf")\s*(?:,|$)"
)
_FIELD = re.compile(r"([^=!,]+)(==|=|!=)((?:\\.|[^,\\])*)(?:,|$)")

_COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "secrets": frozenset({"type"}),
    "namespaces": frozenset({"status.phase"}),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
}


def label_matcher(text: str | None) -> Matcher:
    """Parse a label selector.

    >>> wanted = label_matcher("app=x,tier in (a, b),!gone")
    >>> wanted({"metadata": {"labels": {"app": "x", "tier": "b"}}})
    True
    >>> wanted({"metadata": {"labels": {"app": "x", "tier": "c"}}})
    False
    >>> label_matcher("app!=x")({"metadata": {}})
    True
    """
    tests: list[Callable[[dict[str, str]], bool]] = []
    text = (text or "").strip()
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}', expected: identifier")
        tests.append(_label_test(match))
        position = match.end()
    if text.endswith(","):
        raise bad_request("found '', expected: identifier after ','")

    def matches(item: JsonObject) -> bool:
        labels = item["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _label_test(match: re.Match[str]) -> Callable[[dict[str, str]], bool]:
    if key := match["absent_key"]:
        return lambda labels: key not in labels
    if key := match["present_key"]:
        return lambda labels: key in labels
    if key := match["set_key"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        if match["set_operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    key, value = match["key"], match["value"]
    if match["operator"] == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def field_matcher(plural: str, text: str | None) -> Matcher:
    """Parse a field selector for one kind of resource.

    >>> running = field_matcher("pods", "status.phase=Running,metadata.name!=a")
    >>> running({"metadata": {"name": "b"}, "status": {"phase": "Running"}})
    True
    """
    tests: list[tuple[list[str], str, bool]] = []
    text = (text or "").strip()
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{text[position:]}'")
        name = match[1].strip()
        if name not in _COMMON_FIELDS and name not in _FIELDS.get(plural, ()):
            raise bad_request(f"field label not supported: {name}")
        tests.append((name.split("."), re.sub(r"\\(.)", r"\1", match[3]), match[2] != "!="))
        position = match.end()

    def matches(item: JsonObject) -> bool:
        return all((_field(item, path) == value) is equal for path, value, equal in tests)

    return matches


def _field(item: Any, path: list[str]) -> str:
    for part in path:
        item = item.get(part) if isinstance(item, dict) else None
    if isinstance(item, bool):
        return "true" if item else "false"
    return "" if item is None else str(item)
