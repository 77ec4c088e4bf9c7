"""The scheduler and the kubelet of the fake Kubernetes take pods through their phases as real ones do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.github.fake_cluster import (
    NAMESPACE,
    Json,
    in_phase,
    make_cluster,
    names,
    pod,
    secret,
    states,
    until,
    until_gone,
    virtual,
    waits_for,
)

from jobyard.demo.fake_kubernetes import ContainerEnvironment, FakeKubernetes, Faults, Node, PodPlan

RUNNING = in_phase("Running")
SECRET_VARIABLE = {"name": "JIT", "valueFrom": {"secretKeyRef": {"name": "jit", "key": "config"}}}


def planned(**plan: Any) -> FakeKubernetes:
    return make_cluster(faults=Faults(plan=PodPlan(**plan)))


def ready_condition(item: Json, kind: str) -> Json:
    return next(each for each in item["status"]["conditions"] if each["type"] == kind)


class Containers:
    """Runs containers that wait for their exit code, and keeps what they saw."""

    def __init__(self) -> None:
        self.environments: dict[str, ContainerEnvironment] = {}
        self.exits: dict[str, asyncio.Future[int]] = {}
        self.signals: list[tuple[str, str]] = []
        # How long a container goes on after SIGTERM.
        self.cleanup_seconds = 0.0

    async def __call__(self, item: Json, environment: ContainerEnvironment) -> int:
        name = environment.container
        self.environments[name] = environment
        self.exits[name] = asyncio.get_running_loop().create_future()
        try:
            return await self.exits[name]
        except asyncio.CancelledError as signal:
            self.signals.append((name, signal.args[0]))
            if not self.cleanup_seconds:
                raise
            try:
                await asyncio.sleep(self.cleanup_seconds)
            except asyncio.CancelledError as second:
                self.signals.append((name, second.args[0]))
                raise
            return 0


@pytest.mark.parametrize(
    ("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (1, "Failed", "Error"), (7, "Failed", "Error")]
)
@virtual
async def test_exit_codes_decide_the_phase(code: int, phase: str, reason: str) -> None:
    cluster = planned(exit_code=code, run_seconds=10)
    await cluster.create("pods", NAMESPACE, pod())
    running = await until(cluster, RUNNING)
    assert ready_condition(running, "Ready")["status"] == "True"
    assert running["spec"]["nodeName"] in {"node-1", "node-2", "node-3"}
    ended = await until(cluster, in_phase(phase))
    assert states(ended) == {"runner": ("terminated", code)}
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == reason
    await cluster.close()


@virtual
async def test_an_unschedulable_pod_says_so_and_starts_later() -> None:
    cluster = planned(unschedulable_seconds=90)
    await cluster.create("pods", NAMESPACE, pod())
    waiting = await until(cluster, lambda item: "conditions" in item["status"])
    condition = ready_condition(waiting, "PodScheduled")
    assert (waiting["status"]["phase"], condition["status"], condition["reason"]) == (
        "Pending",
        "False",
        "Unschedulable",
    )
    assert condition["message"] == "0/3 nodes are available: 3 Insufficient cpu."
    started = asyncio.get_running_loop().time()
    await until(cluster, RUNNING)
    assert asyncio.get_running_loop().time() - started == pytest.approx(90, abs=1)
    await cluster.close()


@virtual
async def test_a_full_node_takes_the_next_pod_when_one_has_gone() -> None:
    cluster = make_cluster(nodes=[Node(name="only", cpu="1")])
    large = {"name": "runner", "image": "runner:1", "resources": {"requests": {"cpu": "800m"}}}
    await cluster.create("pods", NAMESPACE, pod("a", containers=[large]))
    await until(cluster, RUNNING)
    await cluster.create("pods", NAMESPACE, pod("b", containers=[large]))
    stuck = await until(cluster, lambda item: "conditions" in item["status"], "b")
    assert ready_condition(stuck, "PodScheduled")["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    await cluster.delete("pods", NAMESPACE, "a")
    await until(cluster, RUNNING, "b")
    await cluster.close()


@virtual
async def test_failing_image_pulls_back_off() -> None:
    cluster = planned(pull_failures=2)
    await cluster.create("pods", NAMESPACE, pod())
    seen: list[tuple[str, Any]] = []
    async for event in cluster.watch("pods", NAMESPACE):
        state = states(event["object"]).get("runner")
        if state and (not seen or seen[-1] != state):
            seen.append(state)
        if state and state[0] == "running":
            break
    pull, backoff = ("waiting", "ErrImagePull"), ("waiting", "ImagePullBackOff")
    assert seen == [("waiting", "ContainerCreating"), pull, backoff, pull, backoff, ("running", None)]
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1)
    await cluster.close()


@virtual
async def test_an_image_name_that_cannot_be_read() -> None:
    cluster = make_cluster()
    await cluster.create("pods", NAMESPACE, pod(containers=[{"name": "runner", "image": "Not An Image"}]))
    broken = await until(cluster, waits_for("InvalidImageName"))
    assert broken["status"]["phase"] == "Pending"
    await cluster.close()


@virtual
async def test_a_missing_secret_is_a_configuration_error_until_it_exists() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    runner = {"name": "runner", "image": "runner:1", "env": [SECRET_VARIABLE, {"name": "X", "value": "<$(JIT)>"}]}
    await cluster.create("pods", NAMESPACE, pod(containers=[runner]))
    broken = await until(cluster, waits_for("CreateContainerConfigError"))
    assert broken["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == 'secret "jit" not found'
    await cluster.create("secrets", NAMESPACE, secret("jit", other="x"))
    wrong = "couldn't find key config in Secret runners/jit"
    await until(
        cluster, lambda item: item["status"]["containerStatuses"][0]["state"]["waiting"].get("message") == wrong
    )
    await cluster.patch("secrets", NAMESPACE, "jit", {"stringData": {"config": "abc"}})
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    assert containers.environments["runner"] == {"JIT": "abc", "X": "<abc>"}
    await cluster.close()


@virtual
async def test_an_optional_secret_appears_in_a_mounted_volume() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    volume = {"name": "jit", "secret": {"secretName": "jit", "optional": True}}
    runner = {"name": "runner", "image": "runner:1", "volumeMounts": [{"name": "jit", "mountPath": "/jit"}]}
    await cluster.create("pods", NAMESPACE, pod(containers=[runner], volumes=[volume]))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    read = containers.environments["runner"].read_file
    assert read("/jit/config") is None
    await cluster.create("secrets", NAMESPACE, secret("jit", config="one"))
    assert read("/jit/config") is None, "the kubelet has not synced yet"
    await asyncio.sleep(60)
    assert read("/jit/config") == b"one"
    await cluster.patch("secrets", NAMESPACE, "jit", {"stringData": {"config": "two"}})
    assert read("/jit/config") == b"one"
    await cluster.patch("pods", NAMESPACE, "a", {"metadata": {"annotations": {"nudge": "1"}}})
    assert read("/jit/config") == b"two", "a change of the pod syncs at once"
    await cluster.close()


@virtual
async def test_a_required_secret_volume_holds_the_pod_back() -> None:
    cluster = make_cluster()
    volume = {"name": "jit", "secret": {"secretName": "jit"}}
    await cluster.create("pods", NAMESPACE, pod(volumes=[volume]))
    await until(cluster, waits_for("ContainerCreating"))
    await asyncio.sleep(100)
    events = await cluster.list("events", NAMESPACE, field_selector="reason=FailedMount")
    assert events["items"][0]["message"].endswith('secret "jit" not found')
    await cluster.create("secrets", NAMESPACE, secret("jit", config="x"))
    await until(cluster, RUNNING)
    await cluster.close()


@virtual
async def test_a_projected_token_names_its_pod_and_dies_with_it() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    source = {"serviceAccountToken": {"path": "token", "audience": "jobyard", "expirationSeconds": 600}}
    volume = {"name": "id", "projected": {"sources": [source]}}
    runner = {"name": "runner", "image": "runner:1", "volumeMounts": [{"name": "id", "mountPath": "/id"}]}
    made = await cluster.create("pods", NAMESPACE, pod(containers=[runner], volumes=[volume]))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    token = (containers.environments["runner"].read_file("/id/token") or b"").decode()

    async def review(audience: str) -> Json:
        body = {"spec": {"token": token, "audiences": [audience]}}
        status: Json = (await cluster.create("tokenreviews", None, body))["status"]
        return status

    good = await review("jobyard")
    assert (good["authenticated"], good["audiences"]) == (True, ["jobyard"])
    assert good["user"]["username"] == "system:serviceaccount:runners:default"
    assert good["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [made["metadata"]["uid"]]
    assert not (await review("other")).get("authenticated")
    await cluster.delete("pods", NAMESPACE, "a", {"gracePeriodSeconds": 0})
    assert not (await review("jobyard")).get("authenticated")
    await cluster.close()


def with_sidecar() -> Json:
    sidecar = {"name": "dind", "image": "docker:dind", "restartPolicy": "Always"}
    return pod(initContainers=[{"name": "copy", "image": "runner:1"}, sidecar])


@virtual
async def test_a_native_sidecar_starts_before_and_ends_after_the_container() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, with_sidecar())
    initial = await until(cluster, lambda item: states(item, "initContainerStatuses").get("copy") == ("running", None))
    assert (initial["status"]["phase"], states(initial)["runner"]) == ("Pending", ("waiting", "PodInitializing"))
    await asyncio.sleep(1)
    containers.exits["copy"].set_result(0)
    running = await until(cluster, RUNNING)
    assert states(running, "initContainerStatuses") == {"copy": ("terminated", 0), "dind": ("running", None)}
    await asyncio.sleep(1)
    containers.exits["runner"].set_result(0)
    ended = await until(cluster, in_phase("Succeeded"))
    # SIGTERM ends the sidecar with a code that does not count.
    assert states(ended, "initContainerStatuses")["dind"] == ("terminated", 143)
    assert containers.signals == [("dind", "SIGTERM")]
    await cluster.close()


@virtual
async def test_a_sidecar_that_crashes_is_restarted() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod(initContainers=with_sidecar()["spec"]["initContainers"][1:]))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    containers.exits["dind"].set_result(1)

    def restarted(item: Json) -> bool:
        (status,) = item["status"]["initContainerStatuses"]
        return bool(status["restartCount"] == 1 and "running" in status["state"])

    again = await until(cluster, restarted)
    assert again["status"]["phase"] == "Running"
    assert again["status"]["initContainerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    await cluster.close()


@virtual
async def test_a_failed_init_container_fails_the_pod() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, with_sidecar())
    await until(cluster, lambda item: states(item, "initContainerStatuses").get("copy") == ("running", None))
    await asyncio.sleep(1)
    containers.exits["copy"].set_result(3)
    failed = await until(cluster, in_phase("Failed"))
    assert states(failed, "initContainerStatuses")["copy"] == ("terminated", 3)
    assert states(failed)["runner"][0] == "waiting"
    await cluster.close()


@virtual
async def test_a_second_container_keeps_the_pod_alive() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    both = [{"name": "runner", "image": "runner:1"}, {"name": "dind", "image": "docker:dind"}]
    await cluster.create("pods", NAMESPACE, pod(containers=both))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    containers.exits["runner"].set_result(0)
    half = await until(cluster, lambda item: states(item)["runner"] == ("terminated", 0))
    assert (half["status"]["phase"], states(half)["dind"]) == ("Running", ("running", None))
    containers.exits["dind"].set_result(2)
    await until(cluster, in_phase("Failed"))
    await cluster.close()


@virtual
async def test_deletion_gives_a_grace_period() -> None:
    containers = Containers()
    containers.cleanup_seconds = 20
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod(terminationGracePeriodSeconds=60))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    deleted = await cluster.delete("pods", NAMESPACE, "a")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 60
    assert names(await cluster.list("pods")) == ["a"]
    began = asyncio.get_running_loop().time()
    seen = [
        (event["type"], event["object"]["status"]["phase"])
        async for event in cluster.watch("pods", NAMESPACE, timeout_seconds=100)
    ]
    assert seen == [("ADDED", "Running"), ("MODIFIED", "Succeeded"), ("DELETED", "Succeeded")]
    assert containers.signals == [("runner", "SIGTERM")]
    assert asyncio.get_running_loop().time() - began == pytest.approx(100)
    await cluster.close()


@virtual
async def test_a_deletion_stops_the_sidecar_after_the_container() -> None:
    containers = Containers()
    containers.cleanup_seconds = 20
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod(initContainers=with_sidecar()["spec"]["initContainers"][1:]))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    await cluster.delete("pods", NAMESPACE, "a", {"gracePeriodSeconds": 30})
    await asyncio.sleep(19)
    assert containers.signals == [("runner", "SIGTERM")]
    await asyncio.sleep(2)
    assert containers.signals == [("runner", "SIGTERM"), ("dind", "SIGTERM")]
    await until_gone(cluster, "pods", "a", seconds=10)
    # Its grace period was over before its 20 seconds were.
    assert containers.signals[2:] == [("dind", "SIGKILL")]
    await cluster.close()


@virtual
async def test_a_planned_exit_leaves_init_containers_and_sidecars_alone() -> None:
    cluster = planned(exit_code=1, run_seconds=30)
    await cluster.create("pods", NAMESPACE, with_sidecar())
    running = await until(cluster, RUNNING)
    assert states(running, "initContainerStatuses") == {"copy": ("terminated", 0), "dind": ("running", None)}
    failed = await until(cluster, in_phase("Failed"))
    assert states(failed) == {"runner": ("terminated", 1)}
    await cluster.close()


@virtual
async def test_a_process_that_ignores_the_signal_is_killed() -> None:
    containers = Containers()
    containers.cleanup_seconds = 500
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod(terminationGracePeriodSeconds=30))
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await cluster.delete("pods", NAMESPACE, "a")
    failed = await until(cluster, in_phase("Failed"))
    assert states(failed) == {"runner": ("terminated", 137)}
    assert asyncio.get_running_loop().time() - began == pytest.approx(30)
    assert containers.signals == [("runner", "SIGTERM"), ("runner", "SIGKILL")]
    await cluster.close()


@virtual
async def test_a_forced_deletion_is_immediate_and_still_stops_the_process() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod())
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    await cluster.delete("pods", NAMESPACE, "a", {"gracePeriodSeconds": 0})
    assert names(await cluster.list("pods")) == []
    await asyncio.sleep(1)
    assert containers.signals == [("runner", "SIGTERM")]
    await cluster.close()


@virtual
async def test_out_of_memory_eviction_and_deadline() -> None:
    cluster = planned(oom_after=5)
    await cluster.create("pods", NAMESPACE, pod("oom"))
    killed = await until(cluster, in_phase("Failed"), "oom")
    detail = killed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (detail["reason"], detail["exitCode"]) == ("OOMKilled", 137)
    cluster.faults.plan = PodPlan(evicted_after=5)
    await cluster.create("pods", NAMESPACE, pod("evicted"))
    evicted = await until(cluster, in_phase("Failed"), "evicted")
    assert evicted["status"]["reason"] == "Evicted"
    assert ready_condition(evicted, "DisruptionTarget")["status"] == "True"
    cluster.faults.plan = PodPlan()
    await cluster.create("pods", NAMESPACE, pod("late", activeDeadlineSeconds=60))
    late = await until(cluster, in_phase("Failed"), "late")
    assert late["status"]["reason"] == "DeadlineExceeded"
    await cluster.close()


@virtual
async def test_a_pod_deleted_by_others_ends() -> None:
    cluster = planned(deleted_after=5)
    await cluster.create("pods", NAMESPACE, pod())
    await until_gone(cluster, "pods", "a", seconds=60)
    await cluster.close()


@virtual
async def test_a_pod_of_an_unreachable_node_terminates_for_ever() -> None:
    cluster = planned(node="node-1")
    tolerations = [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        for taint in ("unreachable", "not-ready")
    ]
    await cluster.create("pods", NAMESPACE, pod(tolerations=tolerations))
    await until(cluster, RUNNING)
    began = asyncio.get_running_loop().time()
    cluster.lose_node("node-1", unknown_phase=True)
    unknown = await until(cluster, in_phase("Unknown"))
    assert ready_condition(unknown, "Ready")["status"] == "False"
    await until(cluster, lambda item: "deletionTimestamp" in item["metadata"])
    assert asyncio.get_running_loop().time() - began == pytest.approx(100)
    await asyncio.sleep(10_000)
    assert names(await cluster.list("pods")) == ["a"]
    await cluster.delete("pods", NAMESPACE, "a", {"gracePeriodSeconds": 0})
    assert names(await cluster.list("pods")) == []
    await cluster.close()


@virtual
async def test_a_node_that_returns_finishes_its_deletions() -> None:
    containers = Containers()
    cluster = make_cluster(run_container=containers, faults=Faults(plan=PodPlan(node="node-1")))
    await cluster.create("pods", NAMESPACE, pod())
    await until(cluster, RUNNING)
    cluster.lose_node("node-1", containers_survive=True)
    await cluster.delete("pods", NAMESPACE, "a")
    await asyncio.sleep(500)
    assert (names(await cluster.list("pods")), containers.signals) == (["a"], [])
    cluster.restore_node("node-1")
    await until_gone(cluster, "pods", "a", seconds=60)
    assert containers.signals == [("runner", "SIGTERM")]
    await cluster.close()


@virtual
async def test_pods_of_a_vanished_node_are_collected() -> None:
    cluster = planned(node="node-1")
    await cluster.create("pods", NAMESPACE, pod())
    await until(cluster, RUNNING)
    cluster.lose_node("node-1", vanish=True)
    failed = await until(cluster, in_phase("Failed"))
    assert ready_condition(failed, "DisruptionTarget")["reason"] == "DeletionByPodGC"
    await until_gone(cluster, "pods", "a", seconds=10)
    await cluster.close()


@virtual
async def test_a_killed_process_ends_even_if_it_ignores_signals() -> None:
    containers = Containers()
    containers.cleanup_seconds = 500
    cluster = make_cluster(run_container=containers)
    await cluster.create("pods", NAMESPACE, pod())
    await until(cluster, RUNNING)
    await asyncio.sleep(1)
    cluster.kill_container(NAMESPACE, "a", exit_code=137)
    failed = await until(cluster, in_phase("Failed"), seconds=1)
    assert states(failed) == {"runner": ("terminated", 137)}
    await cluster.close()
