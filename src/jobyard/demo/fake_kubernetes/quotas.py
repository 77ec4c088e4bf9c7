"""Resource quotas: what is used, what a request adds, and the refusal when it is too much."""

from __future__ import annotations

from decimal import Decimal

from jobyard.demo.fake_kubernetes.defaults import qos_class
from jobyard.demo.fake_kubernetes.errors import JsonObject, forbidden
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import copy, format_quantity, quantity

Amounts = dict[str, Decimal]
_COUNTED = ("pods", "secrets", "resourcequotas", "serviceaccounts", "leases")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")


def usage(plural: str, item: JsonObject) -> Amounts:
    """What one object takes from a quota."""
    group = ".coordination.k8s.io" if plural == "leases" else ""
    amounts: Amounts = {f"count/{plural}{group}": Decimal(1)}
    if plural != "pods":
        if not group:
            amounts[plural] = Decimal(1)
        return amounts
    # Objects are counted as long as they exist; compute resources and `pods` only until the pod has ended.
    if item.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return amounts
    amounts["pods"] = Decimal(1)
    for name, amount in pod_requests(item, "requests").items():
        amounts[name] = amounts[f"requests.{name}"] = amount
    for name, amount in pod_requests(item, "limits").items():
        amounts[f"limits.{name}"] = amount
    return amounts


def pod_requests(pod: JsonObject, part: str) -> Amounts:
    """Sum over containers and sidecars; an init container counts only where it needs more than the sum."""

    def of(container: JsonObject) -> Amounts:
        chosen = ((container.get("resources") or {}).get(part) or {}).items()
        return {name: quantity(amount) for name, amount in chosen if name in _COMPUTE}

    total: Amounts = {}
    peak: Amounts = {}
    for container in pod["spec"].get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            total = add(total, of(container))
        else:
            peak = {name: max(value, peak.get(name, Decimal(0))) for name, value in add(total, of(container)).items()}
    for container in pod["spec"].get("containers") or []:
        total = add(total, of(container))
    return {name: max(total.get(name, Decimal(0)), peak.get(name, Decimal(0))) for name in {**total, **peak}}


def add(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, Decimal(0)) + right.get(name, Decimal(0)) for name in {**left, **right}}


def _in_scope(quota: JsonObject, plural: str, item: JsonObject) -> bool:
    scopes = quota["spec"].get("scopes") or []
    if not scopes:
        return True
    if plural != "pods":
        return False
    holds = {
        "Terminating": item["spec"].get("activeDeadlineSeconds") is not None,
        "NotTerminating": item["spec"].get("activeDeadlineSeconds") is None,
        "BestEffort": qos_class(item) == "BestEffort",
        "NotBestEffort": qos_class(item) != "BestEffort",
    }
    return all(holds.get(scope, False) for scope in scopes)


class Quotas:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def check(self, plural: str, item: JsonObject) -> None:
        """Refuse an object for which some quota of its namespace has no room."""
        for quota in self._storage.all("resourcequotas", item["metadata"]["namespace"]):
            if _in_scope(quota, plural, item):
                self._check_one(quota, plural, item)

    def _check_one(self, quota: JsonObject, plural: str, item: JsonObject) -> None:
        name, quota_name = item["metadata"]["name"], quota["metadata"]["name"]
        hard = {key: quantity(value) for key, value in (quota["status"].get("hard") or {}).items()}
        used = {key: quantity(value) for key, value in (quota["status"].get("used") or {}).items()}
        if plural == "pods" and (missing := _unspecified(hard, item)):
            raise forbidden(plural, name, f"failed quota: {quota_name}: must specify {missing}")
        wanted = {key: value for key, value in usage(plural, item).items() if key in hard}
        over = [key for key, value in sorted(wanted.items()) if used.get(key, Decimal(0)) + value > hard[key]]
        if over:
            parts = [
                f"{word}: " + ",".join(f"{key}={format_quantity(amounts.get(key, Decimal(0)))}" for key in over)
                for word, amounts in (("requested", wanted), ("used", used), ("limited", hard))
            ]
            raise forbidden(plural, name, f"exceeded quota: {quota_name}, {', '.join(parts)}")

    def recalculate(self, namespace: str) -> None:
        for quota in self._storage.all("resourcequotas", namespace):
            hard = copy(quota["spec"].get("hard") or {})
            used: Amounts = dict.fromkeys(hard, Decimal(0))
            for plural in _COUNTED:
                for item in self._storage.all(plural, namespace):
                    if _in_scope(quota, plural, item):
                        used = add(used, {key: value for key, value in usage(plural, item).items() if key in hard})
            status = {"hard": hard, "used": {key: format_quantity(value) for key, value in used.items()}}
            if status != quota.get("status"):
                fresh = copy(quota)
                fresh["status"] = status
                key = (namespace, quota["metadata"]["name"])
                self._storage.put("resourcequotas", key, fresh)


def _unspecified(hard: Amounts, pod: JsonObject) -> str:
    """Compute resources that a quota limits must be stated by every container."""
    lacking = []
    for key in sorted(hard):
        part, _, name = key.rpartition(".")
        if name not in _COMPUTE:
            continue
        part = part or "requests"
        without = [
            container["name"]
            for container in pod["spec"].get("containers") or []
            if name not in ((container.get("resources") or {}).get(part) or {})
        ]
        if without:
            lacking.append(f"{key} for: {','.join(without)}")
    return "; ".join(lacking)
