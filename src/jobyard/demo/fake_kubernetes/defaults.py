"""Fields that the API server fills in when an object is created."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.values import quantity

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105


def new_uid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def name_suffix(rng: random.Random) -> str:
    return "".join(rng.choice(_SUFFIX_ALPHABET) for _ in range(5))


def fill_secret(secret: JsonObject) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def fill_pod(pod: JsonObject) -> None:
    """Defaults of the pod API itself; admission adds more."""
    pod["status"] = {"phase": "Pending"}
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        spec = pod["spec"] = {}
    for key, value in _pod_defaults().items():
        spec.setdefault(key, value)
    for container in _containers(spec):
        _fill_container(container)
    for volume in spec.get("volumes") or []:
        for kind in ("secret", "configMap", "projected", "downwardAPI"):
            if isinstance(volume.get(kind), dict):
                volume[kind].setdefault("defaultMode", 0o644)
    pod["status"]["qosClass"] = qos_class(pod)


def _pod_defaults() -> JsonObject:
    return {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "enableServiceLinks": True,
    }


def _containers(spec: JsonObject) -> list[JsonObject]:
    both = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return [container for container in both if isinstance(container, dict)]


def _fill_container(container: JsonObject) -> None:
    image = container.get("image") or ""
    floating = "@" not in image and (":" not in image.rpartition("/")[2] or image.endswith(":latest"))
    container.setdefault("imagePullPolicy", "Always" if floating else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for variable in container.get("env") or []:
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")


def admit_pod(pod: JsonObject, account: JsonObject | None, rng: random.Random) -> None:
    """What the ServiceAccount, Priority and DefaultTolerationSeconds admission plug-ins add."""
    spec = pod["spec"]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for taint in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{taint}"
        if not any(each.get("key") in {key, None} for each in tolerations if each.get("effect") != "NoSchedule"):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = (account or {}).get("automountServiceAccountToken", True)
    if automount:
        _mount_token(spec, rng)


def _mount_token(spec: JsonObject, rng: random.Random) -> None:
    name = f"kube-api-access-{name_suffix(rng)}"
    sources: list[JsonObject] = [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]
    volume = {"name": name, "projected": {"defaultMode": 0o644, "sources": sources}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    for container in _containers(spec):
        mounts = container.get("volumeMounts") or []
        if not any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}]


def qos_class(pod: JsonObject) -> str:
    def amounts(container: JsonObject, part: str) -> dict[str, Any]:
        chosen = ((container.get("resources") or {}).get(part) or {}).items()
        return {name: amount for name, amount in chosen if name in {"cpu", "memory"} and _positive(amount)}

    containers = _containers(pod.get("spec") or {})
    if not any(amounts(each, "limits") or amounts(each, "requests") for each in containers):
        return "BestEffort"
    for each in containers:
        limits = amounts(each, "limits")
        if set(limits) != {"cpu", "memory"} or amounts(each, "requests") != limits:
            return "Burstable"
    return "Guaranteed"


def _positive(amount: Any) -> bool:
    try:
        return quantity(amount) > 0
    except ValueError:
        return False


def fill(plural: str, item: JsonObject) -> None:
    match plural:
        case "pods":
            fill_pod(item)
        case "secrets":
            fill_secret(item)
        case "namespaces":
            item["spec"] = {"finalizers": ["kubernetes"]}
            item["status"] = {"phase": "Active"}
            item["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = item["metadata"].get("name", "")
        case "resourcequotas":
            item.setdefault("spec", {})
            item["status"] = {}
        case "leases":
            item.setdefault("spec", {})
