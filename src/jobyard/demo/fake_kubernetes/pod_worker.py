"""The kubelet's work for one pod: pull, start, watch, restart and stop its containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jobyard.demo.fake_kubernetes.container import missing_volume
from jobyard.demo.fake_kubernetes.container_runner import SIGKILL_EXIT, ContainerRunner, Host, kill_process
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.faults import PodPlan
from jobyard.demo.fake_kubernetes.pod_status import Container, condition, kubelet_status, phase, set_condition
from jobyard.demo.fake_kubernetes.values import copy, timestamp
from jobyard.demo.fake_kubernetes.volumes import Volumes

# Even a forced deletion gives a process this long between SIGTERM and SIGKILL.
_SHORTEST_GRACE_SECONDS = 2.0


class PodWorker:
    """Runs one pod that is bound to a node. The worker outlives the pod object until its containers have stopped."""

    def __init__(self, host: Host, pod: JsonObject, plan: PodPlan) -> None:
        self.host = host
        self.plan = plan
        self.key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.uid: str = pod["metadata"]["uid"]
        self.node: str = pod["spec"]["nodeName"]
        spec, uid = pod["spec"], self.uid
        self.containers = [Container(each, uid, init=True) for each in spec.get("initContainers") or []]
        self.containers += [Container(each, uid, init=False) for each in spec["containers"]]
        self.volumes = Volumes(
            host.storage, host.tokens, host.clock, lambda: self._pod, host.settings.volume_sync_seconds
        )
        self.runner = ContainerRunner(host, plan, self.volumes, lambda: self._pod, self._publish)
        # A lost node runs on or not, but reports nothing.
        self.connected = True
        self.finished = False
        # The node lost its power, and all processes with it.
        self._crashed = False
        self._pod = pod
        self._failure: tuple[str, str] | None = None
        self._missed_failure: tuple[str, str, float] | None = None
        self._grace: float | None = None
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._lifecycle = host.spawn(self._run())

    # ---- what the cluster tells the kubelet ----

    def pod_changed(self, pod: JsonObject) -> None:
        """The pod object changed; a new or shorter deletion grace period stops the containers."""
        before, now = self._pod["metadata"], pod["metadata"]
        self._pod = pod
        if any(before.get(field) != now.get(field) for field in ("labels", "annotations")):
            self.volumes.sync()
        if "deletionTimestamp" in pod["metadata"] and self.connected:
            self.stop(pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    def pod_removed(self) -> None:
        """The object was removed by force; the containers are stopped all the same, if the node can be reached."""
        if self.connected:
            self.stop(0)

    def stop(self, grace: float) -> None:
        """Stop all containers; a shorter grace period replaces the one that is running."""
        grace = max(grace, _SHORTEST_GRACE_SECONDS)
        if self.finished or (self._grace is not None and self._grace <= grace):
            return
        if self._grace is None:
            self.host.spawn(self._stop(grace))
        else:
            asyncio.get_running_loop().call_later(grace, self._kill_all)
        self._grace = grace

    def fail(self, reason: str, message: str, grace: float = 0.0) -> None:
        """End the pod as Failed, as an eviction or a deadline does."""
        if not self.connected:
            self._missed_failure = (reason, message, grace)
        if self._grace is not None or self.finished or not self.connected:
            return
        self._failure = (reason, message)
        self.host.record(self._pod, "Warning", reason, message)
        self.stop(grace)

    def _kill_all(self) -> None:
        for each in self.containers:
            kill_process(each.task)

    def kill(self, container: str | None, exit_code: int, reason: str | None = None) -> None:
        """End the process of one container (default: the first) with an exit code."""
        for each in self.containers:
            if (not each.init if container is None else each.name == container) and each.task is not None:
                each.kill = (exit_code, reason or ("Completed" if exit_code == 0 else "Error"))
                kill_process(each.task)
                return

    def disconnect(self, *, containers_survive: bool) -> None:
        """The node is lost: nothing is reported any more, and usually the containers are gone."""
        self.connected = False
        if not containers_survive:
            self._crashed = True
            self._cancel_supervision()
            self._kill_all()

    def reconnect(self) -> None:
        """The node is back. Containers that did not survive are reported as killed."""
        self.connected = True
        if self.host.storage.get("pods", self.key) is None:
            self.pod_removed()
            return
        for each in self.containers:
            if each.is_running and self._crashed:
                each.terminate(SIGKILL_EXIT, self.host.clock(), "ContainerStatusUnknown")
        if self.finished:
            self._finish()
        elif "deletionTimestamp" in self._pod["metadata"]:
            self.stop(self._pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        elif self._crashed:
            self.stop(0)
        elif self._missed_failure is not None:
            self.fail(*self._missed_failure)
        else:
            self._publish()

    def close(self) -> None:
        """Stop supervising, without any report; the cluster cancels the tasks."""
        self.connected, self.finished = False, True
        self._cancel_supervision()

    # ---- the life of the pod ----

    async def _run(self) -> None:
        self._accept()
        await asyncio.sleep(self.plan.start_seconds)
        await self._mount()
        for each in self.containers:
            if each.sidecar:
                self._supervise(each)
                while not each.is_running:
                    await self.runner.changed()
            elif each.init and not await self._run_init(each):
                return
        self._arm_faults()
        main = [each for each in self.containers if not each.init]
        await asyncio.gather(*(self._supervise(each) for each in main))
        await self._end_sidecars()
        self._finish()

    def _accept(self) -> None:
        waiting = "PodInitializing" if any(each.init for each in self.containers) else "ContainerCreating"
        for each in self.containers:
            each.wait_for(waiting)
        deadline = self._pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            message = "Pod was active on the node longer than the specified deadline"
            grace = self._pod["spec"].get("terminationGracePeriodSeconds", 30)
            self._later(deadline, lambda: self.fail("DeadlineExceeded", message, grace))
        self._publish()

    async def _mount(self) -> None:
        while problem := missing_volume(self.host.storage, self._pod):
            self.host.record(self._pod, "Warning", "FailedMount", problem)
            await self.runner.changed()
        self.volumes.mount()

    async def _run_init(self, container: Container) -> bool:
        await self._supervise(container)
        if container.exit_code == 0:
            return True
        await self._end_sidecars()
        self._finish()
        return False

    def _arm_faults(self) -> None:
        plan = self.plan
        if plan.oom_after is not None:
            self._later(plan.oom_after, lambda: self.kill(plan.victim, SIGKILL_EXIT, "OOMKilled"))
        if plan.killed_after is not None:
            self._later(plan.killed_after, lambda: self.kill(plan.victim, SIGKILL_EXIT))
        if plan.evicted_after is not None:
            self._later(plan.evicted_after, self.evict)
        if plan.deleted_after is not None:
            self._later(plan.deleted_after, lambda: self.host.delete_pod(self._pod))
        if plan.node_lost_after is not None:
            self._later(plan.node_lost_after, lambda: self.host.lose_node(self.node, plan.node_lost_seconds))

    def evict(self) -> None:
        message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."
        self.fail("Evicted", message)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, action))

    # ---- one container ----

    def _supervise(self, container: Container) -> asyncio.Task[None]:
        task = self.host.spawn(self.runner.keep_running(container))
        self._supervisors[container.name] = task
        return task

    # ---- the end ----

    async def _end_sidecars(self, grace: float | None = None) -> None:
        """Sidecars are stopped after the other containers have ended, the last one first."""
        if grace is None:
            grace = float(self._pod["spec"].get("terminationGracePeriodSeconds", 30))
        for each in reversed([each for each in self.containers if each.sidecar]):
            await self._stop_containers([each], grace)

    async def _stop(self, grace: float) -> None:
        self._cancel_supervision()
        clock = asyncio.get_running_loop().time
        end = clock() + grace
        await self._stop_containers([each for each in self.containers if not each.sidecar], grace)
        await self._end_sidecars(max(end - clock(), _SHORTEST_GRACE_SECONDS))
        self._finish()

    async def _stop_containers(self, containers: list[Container], grace: float) -> None:
        tasks = {each.name: each.task for each in containers if each.task is not None and not each.task.done()}
        for each in containers:
            if supervisor := self._supervisors.get(each.name):
                supervisor.cancel()
        for task in tasks.values():
            task.cancel("SIGTERM")
        if tasks:
            await asyncio.wait(tasks.values(), timeout=grace)
            for task in tasks.values():
                kill_process(task)
        for each in containers:
            if each.is_running:
                self.runner.reap(each)

    def _cancel_supervision(self) -> None:
        if self._lifecycle is not asyncio.current_task():
            self._lifecycle.cancel()
        for supervisor in self._supervisors.values():
            supervisor.cancel()
        for timer in self._timers:
            timer.cancel()

    def _finish(self) -> None:
        self._cancel_supervision()
        self.finished = True
        self._publish(terminal=True)
        if self.connected and "deletionTimestamp" in self._pod["metadata"]:
            self.host.remove_pod(self._pod)

    def _publish(self, *, terminal: bool = False) -> None:
        stored = self.host.storage.get("pods", self.key)
        if not self.connected or stored is None or stored["metadata"]["uid"] != self.uid:
            return
        pod = copy(stored)
        status = pod["status"]
        if status["phase"] in {"Succeeded", "Failed"}:
            return
        if status["phase"] == "Unknown":
            del status["reason"]
        status.setdefault("startTime", timestamp(self.host.clock()))
        if any(each.is_running for each in self.containers):
            status.setdefault("podIP", f"10.244.{int(self.uid[:2], 16)}.{int(self.uid[2:4], 16)}")
            status.setdefault("podIPs", [{"ip": status["podIP"]}])
        now_phase = phase(self.containers, pod["spec"]["restartPolicy"], terminal=terminal)
        kubelet_status(status, self.containers, now_phase, self.host.clock)
        if self._failure is not None:
            status["phase"] = "Failed"
            status["reason"], status["message"] = self._failure
            if self._failure[0] == "Evicted":
                reason = "TerminationByKubelet"
                set_condition(status, condition("DisruptionTarget", True, self.host.clock(), reason, self._failure[1]))
        self.host.write_status(pod)
