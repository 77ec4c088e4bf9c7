"""Merges a profile's pod template into a pod: maps deep, lists of named items by name, other values replaced."""

from __future__ import annotations

from typing import Any

# Which field identifies the items of a list; lists that are not named here use `name`.
KEYS = {"volumeMounts": "mountPath", "volumeDevices": "devicePath"}
# Their items are alternatives: `value` merged with `valueFrom` would be invalid.
WHOLE_ITEMS = frozenset({"env"})


def merge(base: Any, changes: Any, field: str = "") -> Any:
    """`base` with the changes; a null deletes a key. Neither argument is modified.

    >>> merge({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": None, "z": 3}})
    {'a': {'x': 1, 'z': 3}, 'b': 1}
    >>> merge([{"name": "runner", "image": "a"}], [{"name": "dind", "image": "b"}, {"name": "runner", "image": "c"}])
    [{'name': 'runner', 'image': 'c'}, {'name': 'dind', 'image': 'b'}]
    >>> merge({"args": ["a", "b"]}, {"args": ["c"]})
    {'args': ['c']}
    >>> merge({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]})
    {'env': [{'name': 'A', 'valueFrom': {'fieldRef': {}}}]}
    """
    if isinstance(base, dict) and isinstance(changes, dict):
        merged = {key: value for key, value in base.items() if key not in changes}
        for key, value in changes.items():
            if value is not None:
                merged[key] = merge(base.get(key), value, key)
        return {key: merged[key] for key in (*base, *changes) if key in merged}
    if isinstance(changes, dict):
        return merge({}, changes)  # so that nulls in it are not kept
    key = KEYS.get(field, "name")
    if isinstance(base, list) and isinstance(changes, list) and _is_keyed(base, key) and _is_keyed(changes, key):
        return _merge_items(base, changes, key, field in WHOLE_ITEMS)
    if isinstance(changes, list):
        return [merge(None, each) for each in changes]
    return changes


def _is_keyed(items: list[Any], key: str) -> bool:
    return bool(items) and all(isinstance(item, dict) and key in item for item in items)


def _merge_items(base: list[Any], changes: list[Any], key: str, are_whole: bool) -> list[Any]:
    merged = {item[key]: item for item in base}
    for item in changes:
        merged[item[key]] = merge(None if are_whole else merged.get(item[key]), item)
    return list(merged.values())
