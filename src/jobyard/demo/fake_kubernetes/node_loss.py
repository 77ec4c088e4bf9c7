"""Lost nodes: NotReady, eviction by taint, pods that terminate for ever, and removal of orphaned pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.nodes import Nodes
from jobyard.demo.fake_kubernetes.pod_status import condition, set_condition
from jobyard.demo.fake_kubernetes.pod_worker import PodWorker
from jobyard.demo.fake_kubernetes.settings import Settings
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import copy

_UNREACHABLE = "node.kubernetes.io/unreachable"


class Control(Protocol):
    """What the node controllers need of the cluster."""

    storage: Storage
    settings: Settings
    nodes: Nodes
    workers: dict[str, PodWorker]
    clock: Callable[[], float]

    def write_status(self, pod: JsonObject) -> None: ...
    def delete_pod(self, pod: JsonObject) -> None: ...
    def remove_pod(self, pod: JsonObject) -> None: ...
    def capacity_changed(self) -> None: ...


class NodeLoss:
    def __init__(self, cluster: Control) -> None:
        self._cluster = cluster
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}

    def lose(
        self,
        name: str,
        *,
        containers_survive: bool = False,
        vanish: bool = False,
        unknown_phase: bool = False,
        seconds: float | None = None,
    ) -> None:
        """Lose a node.

        Without `vanish` it is unreachable: its pods terminate for ever once their toleration has passed. With `vanish`
        the node object is gone too, and the pods are removed by force after a quarantine. `unknown_phase` also sets
        the phase Unknown, as old releases do. The node returns after `seconds`, if given.
        """
        node = self._cluster.nodes.by_name[name]
        if not node.ready and (node.vanished or not vanish):
            return
        node.ready, node.vanished = False, vanish
        for worker in self._on(name):
            worker.disconnect(containers_survive=containers_survive)
        settings = self._cluster.settings
        self._later(name, settings.node_monitor_grace_seconds, lambda: self._not_ready(name, unknown_phase))
        if seconds is not None:
            self._later(name, seconds, lambda: self.restore(name))
        if vanish:
            wait = settings.orphan_quarantine_seconds + settings.orphan_check_seconds
            self._later(name, wait, lambda: self._collect_orphans(name))

    def restore(self, name: str) -> None:
        """The node is back; its kubelet reports again and finishes what was to be deleted."""
        node = self._cluster.nodes.by_name[name]
        node.ready, node.vanished = True, False
        self._cancel(name)
        for worker in self._on(name):
            worker.reconnect()
            if self._cluster.storage.get("pods", worker.key) is None:
                self._cluster.workers.pop(worker.uid, None)
        self._cluster.capacity_changed()

    def close(self) -> None:
        for name in list(self._timers):
            self._cancel(name)

    def _on(self, name: str) -> list[PodWorker]:
        return [worker for worker in self._cluster.workers.values() if worker.node == name]

    def _not_ready(self, name: str, unknown_phase: bool) -> None:
        for stored in self._cluster.nodes.pods_on(name):
            pod = copy(stored)
            if pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            set_condition(pod["status"], condition("Ready", False, self._cluster.clock()))
            if unknown_phase:
                pod["status"].update(phase="Unknown", reason="NodeLost")
            self._cluster.write_status(pod)
            seconds = _toleration_seconds(pod)
            if seconds is not None:
                self._later(name, seconds, partial(self._evict, pod))

    def _evict(self, evicted: JsonObject) -> None:
        """The taint manager deletes the pod; without its kubelet it stays Terminating."""
        name = evicted["spec"]["nodeName"]
        for stored in self._cluster.nodes.pods_on(name):
            if (
                stored["metadata"]["uid"] == evicted["metadata"]["uid"]
                and "deletionTimestamp" not in stored["metadata"]
            ):
                self._mark_disrupted(stored, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
                self._cluster.delete_pod(stored)

    def _mark_disrupted(self, stored: JsonObject, reason: str, message: str, phase: str | None = None) -> None:
        pod = copy(stored)
        set_condition(pod["status"], condition("DisruptionTarget", True, self._cluster.clock(), reason, message))
        if phase is not None:
            pod["status"]["phase"] = phase
        self._cluster.write_status(pod)

    def _collect_orphans(self, name: str) -> None:
        """The pod garbage collector ends and removes the pods of a node that does not exist."""
        for stored in self._cluster.nodes.pods_on(name):
            phase = stored["status"].get("phase")
            ended = phase if phase in {"Succeeded", "Failed"} else "Failed"
            self._mark_disrupted(stored, "DeletionByPodGC", "PodGC: node no longer exists", ended)
            self._cluster.remove_pod(stored)

    def _later(self, name: str, seconds: float, action: Callable[[], Any]) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, action)
        self._timers.setdefault(name, []).append(timer)

    def _cancel(self, name: str) -> None:
        for timer in self._timers.pop(name, []):
            timer.cancel()


def _toleration_seconds(pod: JsonObject) -> float | None:
    """How long a pod tolerates an unreachable node; None means for ever."""
    shortest: float | None = None
    for toleration in pod["spec"].get("tolerations") or []:
        if toleration.get("key") in {_UNREACHABLE, None} and toleration.get("effect") in {"NoExecute", None}:
            seconds = toleration.get("tolerationSeconds")
            if seconds is None:
                return None
            shortest = seconds if shortest is None else min(shortest, seconds)
    return 0.0 if shortest is None else shortest
