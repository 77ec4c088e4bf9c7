"""The status of a pod: container states, phase and conditions, by the rules of the kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.values import timestamp


class Container:
    """One container of a running pod."""

    def __init__(self, spec: JsonObject, pod_uid: str, *, init: bool) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.init = init
        self.sidecar = init and spec.get("restartPolicy") == "Always"
        self.state: JsonObject = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: JsonObject = {}
        self.restarts = 0
        self.task: asyncio.Task[int] | None = None
        # Set just before the process is killed, so that its end is reported with this exit code and reason.
        self.kill: tuple[int, str] | None = None
        self._pod_uid = pod_uid

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def wait_for(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def run(self, now: float) -> None:
        self.state = {"running": {"startedAt": timestamp(now)}}

    def terminate(self, exit_code: int, now: float, reason: str | None = None) -> None:
        started = (self.state.get("running") or {}).get("startedAt")
        ended: JsonObject = {
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": started,
            "finishedAt": timestamp(now),
            "containerID": self._container_id,
        }
        self.state = {"terminated": ended}

    @property
    def _container_id(self) -> str:
        return f"containerd://{self._pod_uid}-{self.name}-{self.restarts}"

    def status(self) -> JsonObject:
        completed = self.init and not self.sidecar and self.exit_code == 0
        created = self.is_running or "terminated" in self.state or bool(self.last_state)
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": (self.is_running and (not self.init or self.sidecar)) or completed,
            "started": self.is_running and (not self.init or self.sidecar),
            "restartCount": self.restarts,
            "image": self.spec["image"],
            "imageID": f"fake@{self.spec['image']}" if created else "",
            **({"containerID": self._container_id} if created else {}),
        }


class _Counts(NamedTuple):
    pending_init: int = 0
    failed_init: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    succeeded: int = 0


def _count(containers: list[Container]) -> _Counts:
    totals = dict.fromkeys(_Counts._fields, 0)
    for container in containers:
        restarting = "waiting" in container.state and bool(container.last_state)
        code = container.exit_code
        if container.init and not container.sidecar:
            last = (container.last_state.get("terminated") or {}).get("exitCode") if restarting else code
            totals["failed_init" if last else "pending_init"] += last != 0
        elif container.is_running:
            totals["running"] += 1
        elif container.sidecar:
            # A sidecar that has ended or restarts does not count.
            totals["waiting"] += code is None and not restarting
        elif code is not None or restarting:
            totals["stopped"] += 1
            totals["succeeded"] += code == 0
        else:
            totals["waiting"] += 1
    return _Counts(**totals)


def phase(containers: list[Container], restart_policy: str, *, terminal: bool = False) -> str:
    """The phase of a pod; `terminal` when nothing will be restarted any more."""
    counts = _count(containers)
    if counts.failed_init and (restart_policy == "Never" or terminal):
        return "Failed"
    if counts.pending_init or counts.failed_init or counts.waiting:
        return "Pending" if not terminal else "Failed"
    if counts.running:
        return "Running"
    if not counts.stopped:
        return "Pending"
    if not terminal and restart_policy == "Always":
        return "Running"
    if counts.stopped == counts.succeeded:
        return "Succeeded"
    return "Failed" if terminal or restart_policy == "Never" else "Running"


def condition(kind: str, holds: bool, now: float, reason: str = "", message: str = "") -> JsonObject:
    result: JsonObject = {
        "type": kind,
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
    }
    if reason:
        result["reason"] = reason
    if message:
        result["message"] = message
    return result


def set_condition(status: JsonObject, new: JsonObject) -> None:
    """Add or replace a condition; the transition time moves only when the truth changes."""
    conditions = status.setdefault("conditions", [])
    for index, old in enumerate(conditions):
        if old["type"] == new["type"]:
            if old["status"] == new["status"]:
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[index] = new
            return
    conditions.append(new)


def kubelet_status(status: JsonObject, containers: list[Container], new_phase: str, clock: Callable[[], float]) -> None:
    """Write phase, container statuses and conditions into `status`."""
    now = clock()
    status["phase"] = new_phase
    main = [container for container in containers if not container.init]
    inits = [container for container in containers if container.init]
    status["containerStatuses"] = [container.status() for container in main]
    if inits:
        status["initContainerStatuses"] = [container.status() for container in inits]
    sandbox = any(container.is_running or container.exit_code is not None for container in containers)
    initialized = all(container.is_running if container.sidecar else container.exit_code == 0 for container in inits)
    initialized = initialized or any(container.is_running or container.exit_code is not None for container in main)
    ready = all(container.is_running for container in main) and initialized
    ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(new_phase, "")
    not_ready = "" if ready else ended or "ContainersNotReady"
    names = " ".join(container.name for container in main if not container.is_running)
    message = f"containers with unready status: [{names}]" if not_ready == "ContainersNotReady" else ""
    set_condition(status, condition("PodReadyToStartContainers", sandbox and not ended, now))
    set_condition(status, condition("Initialized", initialized, now, "" if initialized else "ContainersNotInitialized"))
    set_condition(status, condition("Ready", ready, now, not_ready, message))
    set_condition(status, condition("ContainersReady", ready, now, not_ready, message))
