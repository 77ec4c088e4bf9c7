"""The scheduler and the kubelets: they follow the stored pods and drive each of them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from jobyard.demo.fake_kubernetes.access import Tokens
from jobyard.demo.fake_kubernetes.container import RunContainer
from jobyard.demo.fake_kubernetes.container_runner import kill_process
from jobyard.demo.fake_kubernetes.defaults import new_uid
from jobyard.demo.fake_kubernetes.deletion import Deletion
from jobyard.demo.fake_kubernetes.errors import ApiError, JsonObject
from jobyard.demo.fake_kubernetes.faults import PodPlan
from jobyard.demo.fake_kubernetes.node_loss import NodeLoss
from jobyard.demo.fake_kubernetes.nodes import Node, Nodes
from jobyard.demo.fake_kubernetes.pod_status import condition, set_condition
from jobyard.demo.fake_kubernetes.pod_worker import PodWorker
from jobyard.demo.fake_kubernetes.resources import RESOURCES
from jobyard.demo.fake_kubernetes.settings import Settings
from jobyard.demo.fake_kubernetes.storage import Change, Key, Storage
from jobyard.demo.fake_kubernetes.values import copy, from_timestamp, timestamp

PlanPod = Callable[[JsonObject], PodPlan]


class Cluster:
    def __init__(
        self,
        *,
        storage: Storage,
        deletion: Deletion,
        tokens: Tokens,
        settings: Settings,
        nodes: Sequence[Node],
        clock: Callable[[], float],
        rng: random.Random,
        plan_pod: PlanPod,
        run_container: RunContainer | None,
    ) -> None:
        self.storage = storage
        self.tokens = tokens
        self.settings = settings
        self.run_container = run_container
        self.nodes = Nodes(storage, nodes, rng)
        self.clock = clock
        self.loss = NodeLoss(self)
        self._deletion = deletion
        self._rng = rng
        self._plan_pod = plan_pod
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._scheduling: dict[str, asyncio.Task[None]] = {}
        self._capacity_freed = asyncio.Event()
        self._recorded = 0
        self.container_errors: list[BaseException] = []
        self.plans: dict[str, PodPlan] = {}
        self.workers: dict[str, PodWorker] = {}
        storage.subscribe("pods", self._pod_changed)
        storage.subscribe("secrets", self._secret_changed)

    # ---- what happens in the store ----

    def _pod_changed(self, change: Change) -> None:
        before, pod = change.before, change.after
        if pod is None or (before is not None and before["metadata"]["uid"] != pod["metadata"]["uid"]):
            self._pod_removed(before or {})
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if worker := self.workers.get(uid):
            worker.pod_changed(pod)
        elif not pod["spec"].get("nodeName") and uid not in self._scheduling and before is None:
            self.plans[uid] = self._plan_pod(copy(pod))
            self._scheduling[uid] = self.spawn(self._schedule(change.key, uid))
        elif pod["spec"].get("nodeName") and before is None:
            # A pod that is created with a node name bypasses the scheduler.
            self.plans[uid] = self._plan_pod(copy(pod))
            self._start_worker(pod)
        if pod["status"].get("phase") in {"Succeeded", "Failed"}:
            self._capacity_freed.set()

    def _pod_removed(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        self.plans.pop(uid, None)
        if task := self._scheduling.pop(uid, None):
            task.cancel()
        if worker := self.workers.get(uid):
            worker.pod_removed()
            # The kubelet of a lost node does not learn of it before it is back.
            if worker.connected:
                del self.workers[uid]
        self._capacity_freed.set()

    def _secret_changed(self, change: Change) -> None:
        for worker in list(self.workers.values()):
            if worker.key[0] == change.key[0]:
                worker.volumes.secret_changed(change)
                worker.runner.wake.set()

    # ---- the scheduler ----

    async def _schedule(self, key: Key, uid: str) -> None:
        plan = self.plans[uid]
        await asyncio.sleep(plan.schedule_seconds)
        if plan.unschedulable_seconds is not None:
            total = len([node for node in self.nodes.by_name.values() if not node.vanished])
            self._report_unschedulable(key, f"0/{total} nodes are available: {total} Insufficient cpu.")
            if math.isinf(plan.unschedulable_seconds):
                await asyncio.Event().wait()
            await asyncio.sleep(plan.unschedulable_seconds)
        while True:
            pod = self.storage.get("pods", key)
            if pod is None or pod["metadata"]["uid"] != uid:
                return
            node, message = self.nodes.choose(pod, plan.node)
            if node is not None:
                break
            self._report_unschedulable(key, message)
            self._capacity_freed.clear()
            await self._capacity_freed.wait()
        del self._scheduling[uid]
        self._bind(pod, node)

    def _report_unschedulable(self, key: Key, message: str) -> None:
        stored = self.storage.get("pods", key)
        if stored is None:
            return
        pod = copy(stored)
        set_condition(pod["status"], condition("PodScheduled", False, self.clock(), "Unschedulable", message))
        self.write_status(pod)
        self.record(pod, "Warning", "FailedScheduling", message)

    def _bind(self, stored: JsonObject, node: str) -> None:
        pod = copy(stored)
        pod["spec"]["nodeName"] = node
        set_condition(pod["status"], condition("PodScheduled", True, self.clock()))
        metadata = pod["metadata"]
        pod = self.storage.put("pods", (metadata["namespace"], metadata["name"]), pod)
        self.record(
            pod, "Normal", "Scheduled", f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        )
        self._start_worker(pod)

    def _start_worker(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        self.workers[uid] = PodWorker(self, pod, self.plans[uid])

    def capacity_changed(self) -> None:
        self._capacity_freed.set()

    # ---- what the workers need ----

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def track(self, process: asyncio.Task[int]) -> None:
        """Remember the process of a container until it ends."""
        self._tasks[process] = None
        process.add_done_callback(self._process_ended)

    def _process_ended(self, process: asyncio.Task[int]) -> None:
        self._tasks.pop(process, None)
        if not process.cancelled() and (problem := process.exception()):
            self.container_errors.append(problem)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (problem := task.exception()):
            context = {"message": "A controller of the fake cluster failed", "exception": problem, "task": task}
            task.get_loop().call_exception_handler(context)

    def write_status(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if self.storage.get("pods", key) != pod:
            self.storage.put("pods", key, pod)

    def remove_pod(self, pod: JsonObject) -> None:
        """The kubelet has stopped a pod and deletes its object."""
        self._delete(pod, {"gracePeriodSeconds": 0})

    def delete_pod(self, pod: JsonObject) -> None:
        """A third party deletes a pod."""
        self._delete(pod, {})

    def _delete(self, pod: JsonObject, options: JsonObject) -> None:
        metadata = pod["metadata"]
        options = {**options, "preconditions": {"uid": metadata["uid"]}}
        try:
            self._deletion.delete(RESOURCES["pods"], metadata["namespace"], metadata["name"], options)
        except ApiError as problem:
            if problem.status_code not in {404, 409}:
                raise

    def lose_node(self, name: str, seconds: float | None = None) -> None:
        self.loss.lose(name, seconds=seconds)

    def record(self, pod: JsonObject, kind: str, reason: str, message: str) -> None:
        """Write an Event object about a pod, and remove those that are too old."""
        if not self.settings.record_events:
            return
        metadata = pod["metadata"]
        now, namespace = self.clock(), metadata["namespace"]
        self._recorded += 1
        if self._recorded % 100 == 0:
            self._expire_events()
        name = f"{metadata['name']}.{self._rng.getrandbits(64):016x}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": new_uid(self._rng),
                "creationTimestamp": timestamp(now),
            },
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet" if pod["spec"].get("nodeName") else "default-scheduler"},
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": "kubelet",
            "reportingInstance": pod["spec"].get("nodeName", ""),
        }
        self.storage.put("events", (namespace, name), event)

    def _expire_events(self) -> None:
        for old in list(self.storage.all("events")):
            metadata = old["metadata"]
            if from_timestamp(metadata["creationTimestamp"]) + self.settings.event_ttl_seconds > self.clock():
                break
            self.storage.remove("events", (metadata["namespace"], metadata["name"]))

    async def close(self) -> None:
        """Stop every task without any further change of the store."""
        self.loss.close()
        tasks = list(self._tasks)
        for worker in list(self.workers.values()):
            worker.close()
        for task in tasks:
            kill_process(task)
        await asyncio.gather(*tasks, return_exceptions=True)
