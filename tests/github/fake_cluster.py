"""What the tests of the fake Kubernetes share: virtual time, objects, and a check against the published schemas."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import kubernetes_validate
import kubernetes_validate.utils
from tests.github.virtual_time import run_virtually, wall_clock

from jobyard.demo.fake_kubernetes import ApiError, FakeKubernetes, Faults, PodPlan

Json = dict[str, Any]
NAMESPACE = "runners"
SCHEMA_VERSION = "1.34"
# The library reads all schemas of a release for each object.
_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def schema_problems(item: Json) -> list[str]:
    """What the published schema of the object's kind says against it."""
    reader, kubernetes_validate.utils.schema_contents = kubernetes_validate.utils.schema_contents, _contents
    try:
        kubernetes_validate.validate(item, SCHEMA_VERSION, strict=True)
    except kubernetes_validate.ValidationError as problem:
        return [str(problem.message)]
    finally:
        kubernetes_validate.utils.schema_contents = reader
    return []


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop whose clock jumps."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtually(lambda: test(*args, **kwargs))

    return run


def make_cluster(**options: Any) -> FakeKubernetes:
    """A cluster in virtual time that refuses what the schemas do not allow."""
    defaults: Json = {
        "clock": wall_clock,
        "rng": random.Random(5),
        "namespaces": (NAMESPACE,),
        "schema_check": schema_problems,
    }
    return FakeKubernetes(**{**defaults, **options})


def pod(name: str = "a", *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "runner", "image": "runner:2.336"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


def secret(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def states(item: Json, part: str = "containerStatuses") -> dict[str, tuple[str, Any]]:
    """Per container: waiting, running or terminated, with its reason or exit code."""
    found = {}
    for status in item["status"].get(part, []):
        ((kind, detail),) = status["state"].items()
        found[status["name"]] = (kind, detail.get("exitCode", detail.get("reason")))
    return found


async def until(
    cluster: FakeKubernetes, wanted: Callable[[Json], bool], name: str = "a", seconds: float = 4000
) -> Json:
    """Wait until the pod is as wanted, and return it."""
    async with asyncio.timeout(seconds):
        async for event in cluster.watch("pods", NAMESPACE, field_selector=f"metadata.name={name}"):
            if event["type"] != "DELETED" and wanted(event["object"]):
                item: Json = event["object"]
                return item
    raise AssertionError("the watch ended")


def in_phase(phase: str) -> Callable[[Json], bool]:
    return lambda item: bool(item["status"]["phase"] == phase)


def waits_for(reason: str) -> Callable[[Json], bool]:
    return lambda item: ("waiting", reason) in states(item).values()


async def until_gone(cluster: FakeKubernetes, plural: str, name: str, seconds: float = 4000) -> None:
    """Wait until an object no longer exists."""
    selector = f"metadata.name={name}"
    found = await cluster.list(plural, NAMESPACE, field_selector=selector)
    if not found["items"]:
        return
    revision = found["metadata"]["resourceVersion"]
    async with asyncio.timeout(seconds):
        async for event in cluster.watch(plural, NAMESPACE, field_selector=selector, resource_version=revision):
            if event["type"] == "DELETED":
                return


async def refusal(request: Awaitable[Any]) -> ApiError:
    """The error with which a request is answered."""
    try:
        await request
    except ApiError as problem:
        assert problem.body["kind"] == "Status"
        assert problem.body["code"] == problem.status_code
        return problem
    raise AssertionError("the request succeeded")


# Pods that stay as they were created, so that only the test changes something.
STILL = PodPlan(unschedulable_seconds=float("inf"), schedule_seconds=10_000)


def still(**options: Any) -> FakeKubernetes:
    return make_cluster(**{"faults": Faults(plan=STILL), **options})


async def take(cluster: FakeKubernetes, count: int, **options: Any) -> list[tuple[str, str]]:
    """The first events of a watch on pods, as type and name."""
    seen = []
    async for event in cluster.watch("pods", NAMESPACE, **options):
        seen.append((event["type"], event["object"]["metadata"].get("name", "")))
        if len(seen) == count:
            break
    return seen


def names(found: Json) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]
