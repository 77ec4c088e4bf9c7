"""Rules for pods: what a new pod must have, and what an update may change."""

from __future__ import annotations

import re
from typing import Any

from jobyard.demo.fake_kubernetes.errors import JsonObject, Problem
from jobyard.demo.fake_kubernetes.validation import (
    bad_value,
    dns_label_problems,
    duplicate,
    missing_reference,
    prohibited,
    required,
    subdomain_problems,
    unsupported,
)
from jobyard.demo.fake_kubernetes.values import copy, quantity

_ENV_NAME = re.compile(r"[^=\x00-\x1f\x7f-\U0010ffff]+")
_RESOURCE_NAME = re.compile(r"([A-Za-z0-9.-]+/)?[A-Za-z0-9][-A-Za-z0-9_.]*")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_problems(pod: JsonObject) -> list[Problem]:
    spec = pod.get("spec") or {}
    volumes, problems = _volume_problems(spec.get("volumes") or [])
    containers = spec.get("containers") or []
    if not containers:
        problems.append(required("spec.containers"))
    seen: set[str] = set()
    for index, container in enumerate(spec.get("initContainers") or []):
        field = f"spec.initContainers[{index}]"
        problems += _container_problems(field, container, volumes, seen)
        if container.get("restartPolicy") not in {None, "Always"}:
            problems.append(unsupported(f"{field}.restartPolicy", container["restartPolicy"], ["Always"]))
    for index, container in enumerate(containers):
        problems += _container_problems(f"spec.containers[{index}]", container, volumes, seen)
    policies = ["Always", "OnFailure", "Never"]
    if spec.get("restartPolicy") not in policies:
        problems.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), policies))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        message = "must be between 1 and 2147483647, inclusive"
        problems.append(bad_value("spec.activeDeadlineSeconds", deadline, message))
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        problems.append(bad_value("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    if hostname := spec.get("hostname"):
        problems += dns_label_problems("spec.hostname", hostname)
    if account := spec.get("serviceAccountName"):
        problems += subdomain_problems("spec.serviceAccountName", account)
    return problems + _toleration_problems(spec.get("tolerations") or [])


def _toleration_problems(tolerations: list[JsonObject]) -> list[Problem]:
    problems = []
    for index, toleration in enumerate(tolerations):
        field = f"spec.tolerations[{index}]"
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            problems.append(bad_value(f"{field}.effect", toleration.get("effect", ""), message))
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            message = "value must be empty when `operator` is 'Exists'"
            problems.append(bad_value(f"{field}.operator", toleration["value"], message))
    return problems


def _volume_problems(volumes: list[JsonObject]) -> tuple[set[str], list[Problem]]:
    names: set[str] = set()
    problems = []
    for index, volume in enumerate(volumes):
        field, name = f"spec.volumes[{index}]", volume.get("name") or ""
        problems += dns_label_problems(f"{field}.name", name) if name else [required(f"{field}.name")]
        if name in names:
            problems.append(duplicate(f"{field}.name", name))
        names.add(name)
        sources = [key for key in volume if key != "name"]
        if not sources:
            problems.append(required(field, "must specify a volume type"))
        elif len(sources) > 1:
            problems.append(prohibited(f"{field}.{sources[1]}", "may not specify more than 1 volume type"))
        if "secret" in volume and not (volume["secret"] or {}).get("secretName"):
            problems.append(required(f"{field}.secret.secretName"))
    return names, problems


def _container_problems(field: str, container: JsonObject, volumes: set[str], seen: set[str]) -> list[Problem]:
    name = container.get("name") or ""
    problems = dns_label_problems(f"{field}.name", name) if name else [required(f"{field}.name")]
    if name in seen:
        problems.append(duplicate(f"{field}.name", name))
    seen.add(name)
    image = container.get("image")
    if not image:
        problems.append(required(f"{field}.image"))
    elif image != image.strip():
        problems.append(bad_value(f"{field}.image", image, "must not have leading or trailing whitespace"))
    problems += _environment_problems(field, container)
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        where, path = f"{field}.volumeMounts[{index}]", mount.get("mountPath") or ""
        if mount.get("name") not in volumes:
            problems.append(missing_reference(f"{where}.name", mount.get("name") or ""))
        if not path:
            problems.append(required(f"{where}.mountPath"))
        elif path in mounts:
            problems.append(bad_value(f"{where}.mountPath", path, "must be unique"))
        mounts.add(path)
    return problems + _resource_problems(f"{field}.resources", container.get("resources") or {})


def _environment_problems(field: str, container: JsonObject) -> list[Problem]:
    problems = []
    for index, variable in enumerate(container.get("env") or []):
        where, name = f"{field}.env[{index}]", variable.get("name") or ""
        if not name:
            problems.append(required(f"{where}.name"))
        elif not _ENV_NAME.fullmatch(name):
            problems.append(bad_value(f"{where}.name", name, "a valid environment variable name must be printable"))
        source = variable.get("valueFrom")
        if source is not None and variable.get("value"):
            message = "may not be specified when `value` is not empty"
            problems.append(bad_value(f"{where}.valueFrom", "", message))
        if source is not None and len(source) != 1:
            problems.append(bad_value(f"{where}.valueFrom", "", "must specify one of the sources"))
        reference = (source or {}).get("secretKeyRef")
        if reference is not None and not reference.get("key"):
            problems.append(required(f"{where}.valueFrom.secretKeyRef.key"))
    return problems


def _resource_problems(field: str, resources: JsonObject) -> list[Problem]:
    problems = []
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            where = f"{field}.{part}[{name}]"
            if not _RESOURCE_NAME.fullmatch(name):
                problems.append(bad_value(where, name, "must be a valid resource name"))
            parsed = _parse(amount)
            if parsed is None or parsed < 0:
                problems.append(bad_value(where, str(amount), "must be a quantity greater than or equal to 0"))
            elif part == "requests" and (limit := _parse(limits.get(name))) is not None and parsed > limit:
                message = f"must be less than or equal to {name} limit of {limits[name]}"
                problems.append(bad_value(f"{field}.requests", str(amount), message))
    return problems


def _parse(amount: Any) -> Any:
    try:
        return quantity(amount)
    except ValueError:
        return None


def pod_update_problems(pod: JsonObject, before: JsonObject) -> list[Problem]:
    """What an update of `before` changes although it must not."""
    new, old = copy(pod["spec"]), copy(before["spec"])
    if len(new.get("containers") or []) != len(old["containers"]):
        return [prohibited("spec.containers", "pod updates may not add or remove containers")]
    problems = []
    deadline, earlier = new.pop("activeDeadlineSeconds", None), old.pop("activeDeadlineSeconds", None)
    if earlier is not None and (deadline is None or deadline > earlier):
        shown = "null" if deadline is None else deadline
        problems.append(
            bad_value("spec.activeDeadlineSeconds", shown, f"must be less than or equal to previous value {earlier}")
        )
    tolerations, kept = new.pop("tolerations", None) or [], old.pop("tolerations", None) or []
    if any(toleration not in tolerations for toleration in kept):
        problems.append(prohibited("spec.tolerations", "existing toleration can not be modified except its seconds"))
    for containers in ("containers", "initContainers"):
        for spec in (new, old):
            for container in spec.get(containers) or []:
                container.pop("image", None)
    if new != old:
        problems.append(prohibited("spec", _IMMUTABLE))
    return problems
