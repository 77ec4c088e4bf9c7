"""Rendered Kubernetes objects: how the tests find and read them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet")


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def one(objects: Iterable[Object], kind: str, name: str) -> Object:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def title(each: Object) -> str:
    return f"{each['kind']} {each['metadata'].get('namespace')}/{each['metadata']['name']}"


def pod_template(workload: Object) -> Object:
    template: Object = workload["spec"]["template"]
    return template


def container(workload: Object) -> Object:
    (only,) = pod_template(workload)["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def variables(workload: Object) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(workload).get("env", [])}


def secret_data(secret: Object) -> dict[str, str]:
    return {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}


def secret_values(objects: Iterable[Object]) -> Iterator[str]:
    """Every value that must stay in a Secret; those of lists one by one."""
    for secret in of_kind(objects, "Secret"):
        for key, text in secret_data(secret).items():
            if key == "webhook-secrets":
                yield from text.splitlines()
            else:
                yield text


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector with matchLabels and `In` expressions matches."""
    wanted = selector.get("matchLabels", {}).items()
    among = selector.get("matchExpressions", [])
    assert {each["operator"] for each in among} <= {"In"}
    return wanted <= labels.items() and all(labels.get(each["key"]) in each["values"] for each in among)


def mounted_files(workload: Object, objects: Iterable[Object]) -> dict[str, tuple[str, str] | None]:
    """Each file that a pod can read, with the object and key that it comes from: None for objects of other owners."""
    known = {title(each): each for each in objects}
    spec, namespace = pod_template(workload)["spec"], workload["metadata"]["namespace"]
    folders = {each["name"]: each["mountPath"] for each in container(workload)["volumeMounts"]}
    found: dict[str, tuple[str, str] | None] = {}
    for volume in spec["volumes"]:
        for kind, name, items in _sources(volume):
            source = f"{kind} {namespace}/{name}"
            keys = {each["key"]: each["path"] for each in items or []}
            if source in known:
                keys = keys or {key: key for key in known[source]["data"]}
                assert keys.keys() <= known[source]["data"].keys(), f"{source} has no such keys: {keys}"
            for key, path in keys.items():
                found[f"{folders[volume['name']]}/{path}"] = (source, key) if source in known else None
    return found


def _sources(volume: Object) -> Iterator[tuple[str, str, list[Object] | None]]:
    match volume:
        case {"configMap": source}:
            yield "ConfigMap", source["name"], source.get("items")
        case {"secret": source}:
            yield "Secret", source["secretName"], source.get("items")
        case {"projected": {"sources": sources}}:
            for each in sources:
                yield "Secret", each["secret"]["name"], each["secret"]["items"]
