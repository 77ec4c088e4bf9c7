"""Runs one container of a pod: pull the image, resolve the environment, run the process, restart it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from jobyard.demo.fake_kubernetes.access import Tokens
from jobyard.demo.fake_kubernetes.container import (
    ConfigError,
    ContainerEnvironment,
    RunContainer,
    resolve_environment,
)
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.faults import PodPlan
from jobyard.demo.fake_kubernetes.pod_status import Container
from jobyard.demo.fake_kubernetes.settings import Settings
from jobyard.demo.fake_kubernetes.storage import Storage
from jobyard.demo.fake_kubernetes.values import copy
from jobyard.demo.fake_kubernetes.volumes import Volumes

_IMAGE = re.compile(r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@\w+:\w+)?")
SIGKILL_EXIT, SIGTERM_EXIT = 137, 143


class Host(Protocol):
    """What a worker needs of the cluster around it."""

    storage: Storage
    tokens: Tokens
    settings: Settings
    run_container: RunContainer | None

    def clock(self) -> float: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def track(self, process: asyncio.Task[int]) -> None: ...
    def write_status(self, pod: JsonObject) -> None: ...
    def remove_pod(self, pod: JsonObject) -> None: ...
    def delete_pod(self, pod: JsonObject) -> None: ...
    def lose_node(self, name: str, seconds: float | None = None) -> None: ...
    def record(self, pod: JsonObject, kind: str, reason: str, message: str) -> None: ...


class ContainerRunner:
    def __init__(
        self,
        host: Host,
        plan: PodPlan,
        volumes: Volumes,
        get_pod: Callable[[], JsonObject],
        publish: Callable[[], None],
    ) -> None:
        self._host = host
        self._plan = plan
        self._volumes = volumes
        self._get_pod = get_pod
        self._publish = publish
        # Set when a container starts or ends, and when a secret of the namespace changes.
        self.wake = asyncio.Event()

    async def changed(self) -> None:
        self.wake.clear()
        await self.wake.wait()

    async def keep_running(self, container: Container) -> None:
        backoff = self._host.settings.restart_backoff_seconds
        while True:
            await self._pull(container)
            variables = await self._configure(container)
            exit_code = await self._execute(container, variables)
            self._publish()
            self.wake.set()
            policy = "Always" if container.sidecar else self._get_pod()["spec"]["restartPolicy"]
            if container.init and not container.sidecar and policy == "Always":
                policy = "OnFailure"
            if policy == "Never" or (policy == "OnFailure" and exit_code == 0):
                return
            message = f"back-off {backoff:.0f}s restarting failed container={container.name}"
            container.wait_for("CrashLoopBackOff", message)
            self._publish()
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, self._host.settings.max_backoff_seconds)
            container.restarts += 1

    async def _pull(self, container: Container) -> None:
        image, failures = container.spec["image"], self._plan.pull_failures
        if self._plan.invalid_image or not _IMAGE.fullmatch(image):
            problem = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}"'
            container.wait_for("InvalidImageName", f"{problem}: invalid reference format")
            self._publish()
            await _forever()
        if self._plan.pull_seconds and not container.restarts:
            await asyncio.sleep(self._plan.pull_seconds)
        backoff = self._host.settings.image_backoff_seconds
        while failures and not container.restarts:
            problem = f'failed to pull and unpack image "{image}": not found'
            container.wait_for("ErrImagePull", problem)
            self._host.record(self._get_pod(), "Warning", "Failed", f"Error: ErrImagePull: {problem}")
            self._publish()
            await asyncio.sleep(min(1.0, backoff))
            container.wait_for("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {problem}')
            self._publish()
            await asyncio.sleep(max(0.0, backoff - 1.0))
            backoff = min(backoff * 2, self._host.settings.max_backoff_seconds)
            failures -= 1

    async def _configure(self, container: Container) -> dict[str, str]:
        while True:
            try:
                return resolve_environment(self._host.storage, self._get_pod(), container.spec)
            except ConfigError as problem:
                container.wait_for("CreateContainerConfigError", str(problem))
                self._host.record(self._get_pod(), "Warning", "Failed", f"Error: {problem}")
                self._publish()
                await self.changed()

    async def _execute(self, container: Container, variables: dict[str, str]) -> int:
        environment = ContainerEnvironment(
            variables, container.name, lambda path: self._volumes.read(container.spec, path)
        )
        container.kill = None
        container.run(self._host.clock())
        self._publish()
        self.wake.set()
        container.task = asyncio.get_running_loop().create_task(self._process(container, environment))
        self._host.track(container.task)
        # Waiting does not pass a cancellation of this supervisor on to the process.
        await asyncio.wait({container.task})
        return self.reap(container)

    async def _process(self, container: Container, environment: ContainerEnvironment) -> int:
        run, plan = self._host.run_container, self._plan
        if run is not None and (plan.exit_code is None or container.init):
            return await run(copy(self._get_pod()), environment)
        if container.init and not container.sidecar:
            return 0
        if container.sidecar or plan.run_seconds is None:
            await _forever()
        else:
            await asyncio.sleep(plan.run_seconds)
        return plan.exit_code or 0

    def reap(self, container: Container) -> int:
        """Report how the process ended."""
        task, now = container.task, self._host.clock()
        if container.kill is not None:
            container.terminate(container.kill[0], now, container.kill[1])
        elif task is None or not task.done():
            container.terminate(SIGKILL_EXIT, now)
        elif task.cancelled():
            container.terminate(SIGTERM_EXIT, now)
        elif problem := task.exception():
            container.terminate(1, now)
            container.state["terminated"]["message"] = f"{type(problem).__name__}: {problem}"
        else:
            container.terminate(task.result(), now)
        exit_code = container.exit_code
        assert exit_code is not None
        return exit_code


def kill_process(task: asyncio.Task[Any] | None, attempts: int = 1000) -> None:
    """SIGKILL: the process is cancelled at every step until it ends, and its result no longer matters."""
    if task is None or task.done():
        return
    task.cancel("SIGKILL")
    if attempts:
        asyncio.get_running_loop().call_soon(kill_process, task, attempts - 1)


async def _forever() -> None:
    await asyncio.Event().wait()
