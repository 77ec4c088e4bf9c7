"""Nodes, the scheduler that binds pods to them, and what happens when one is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.quotas import Amounts, add, pod_requests
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import quantity


class Node(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    # None means without limit.
    cpu: str | None = None
    memory: str | None = None
    max_pods: int = 110
    labels: dict[str, str] = {}
    ready: bool = True
    # A node that has vanished no longer exists as an object; one that is only lost is unreachable.
    vanished: bool = False


class Nodes:
    def __init__(self, storage: Storage, nodes: Sequence[Node], rng: random.Random) -> None:
        self._storage = storage
        self._rng = rng
        self.by_name = {node.name: node for node in nodes}

    def pods_on(self, name: str) -> list[JsonObject]:
        return [pod for pod in self._storage.all("pods") if pod["spec"].get("nodeName") == name]

    def choose(self, pod: JsonObject, wanted: str | None = None) -> tuple[str | None, str]:
        """The node for a pod, or None and the scheduler's message."""
        counts: dict[str, int] = {}
        fitting: list[tuple[int, str]] = []
        present = [node for node in self.by_name.values() if not node.vanished]
        taken = self._taken()
        for node in present:
            pods, used = taken.get(node.name, (0, {}))
            reason = self._misfit(node, pod, pods, used)
            if reason:
                counts[reason] = counts.get(reason, 0) + 1
            elif wanted in {None, node.name}:
                fitting.append((pods, node.name))
        if fitting:
            fewest = min(fitting)[0]
            return self._rng.choice([name for pods, name in fitting if pods == fewest]), ""
        listed = ", ".join(f"{number} {reason}" for reason, number in counts.items())
        return None, f"0/{len(present)} nodes are available: {listed or 'no nodes'}."

    def _taken(self) -> dict[str, tuple[int, Amounts]]:
        """Pods and requests per node; pods that have ended take nothing."""
        taken: dict[str, tuple[int, Amounts]] = {}
        limited = any(node.cpu or node.memory for node in self.by_name.values())
        for pod in self._storage.all("pods"):
            name = pod["spec"].get("nodeName")
            if name and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                pods, used = taken.get(name, (0, {}))
                taken[name] = (pods + 1, add(used, pod_requests(pod, "requests")) if limited else used)
        return taken

    @staticmethod
    def _misfit(node: Node, pod: JsonObject, pods: int, used: Amounts) -> str:
        if not node.ready:
            return "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
        selector = pod["spec"].get("nodeSelector") or {}
        if any(node.labels.get(key) != value for key, value in selector.items()):
            return "node(s) didn't match Pod's node affinity/selector"
        if pods >= node.max_pods:
            return "Too many pods"
        wanted = pod_requests(pod, "requests")
        for name, capacity in (("cpu", node.cpu), ("memory", node.memory)):
            needed = wanted.get(name, Decimal(0))
            if capacity is not None and needed and used.get(name, Decimal(0)) + needed > quantity(capacity):
                return f"Insufficient {name}"
        return ""
