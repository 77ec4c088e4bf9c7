"""The launcher for Kubernetes against a fake API server, over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from tests.github.kubernetes_bench import FAST, LINUX, Bench, bench, cluster, request, short_waits
from tests.support import eventually

from jobyard.demo.fake_kubernetes import PodPlan, Rule, User
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.errors import LaunchQuotaExceeded, LaunchRejected, LaunchUnavailable
from jobyard.github.launcher import Instance, PendingCause, Phase
from jobyard.ports.store import Level

__all__ = ["bench", "short_waits"]


# Launch


async def test_a_runner_from_launch_to_removal(bench: Bench) -> None:
    launched = await bench.launch()
    assert (launched.name, launched.org_name, launched.runner_id, launched.ticket_id) == ("r1", "acme", 77, "t1")
    assert launched.uid
    assert bench.names() == ["r1"]
    running = await bench.in_phase("r1", Phase.RUNNING)
    assert running.uid == launched.uid
    assert running.started_at
    secret = bench.model.storage.get("secrets", ("runners", "r1"))
    assert secret is not None
    assert secret["metadata"]["ownerReferences"][0]["uid"] == launched.uid
    bench.model.kill_container("runners", "r1", exit_code=0)
    ended = await bench.in_phase("r1", Phase.ENDED)
    assert ended.exit_code == 0
    await bench.launcher.remove(ended)
    await eventually(lambda: bench.names() == [])
    assert bench.stored("pods") == bench.stored("secrets") == []
    assert {each.phase for each in bench.changes} == {Phase.PENDING, Phase.RUNNING, Phase.ENDED}


async def test_the_secret_goes_with_a_pod_that_others_delete(bench: Bench) -> None:
    await bench.launch()
    await bench.in_phase("r1", Phase.RUNNING)
    bench.model.kill_container("runners", "r1")
    bench.model.delete_pod("runners", "r1")
    await eventually(lambda: bench.names() == [] and bench.stored("secrets") == [])


async def test_a_launch_counts_before_its_response_and_before_the_watch_shows_it(bench: Bench) -> None:
    bench.model.faults.watch_lag_seconds = 60.0  # of the watches to come
    bench.inject("gone", "watch")
    bench.model.cut_watches()
    await eventually(lambda: bench.model.open_watches == 1)
    bench.inject("slow", "create", seconds=1.0)
    launching = asyncio.create_task(bench.launch())
    await eventually(lambda: bench.names() == ["r1"])
    assert bench.named("r1").uid == ""  # type: ignore[union-attr]
    launched = await launching
    assert bench.named("r1") == launched
    await bench.until_tried(bench.inject("slow", "get", times=1000, seconds=0.0), 2)  # a GET says that it exists
    assert bench.names() == ["r1"]


async def test_launching_twice_is_the_same_runner(bench: Bench) -> None:
    first = await bench.launch()
    second = await bench.launch()
    assert second.uid == first.uid
    assert bench.stored("pods") == bench.stored("secrets") == ["r1"]


@pytest.mark.parametrize("kind", ["lost_after", "fail_after", "hang_after"])
@pytest.mark.parametrize("resource", ["secrets", "pods"])
async def test_a_create_that_took_effect_and_whose_response_is_lost(bench: Bench, kind: str, resource: str) -> None:
    bench.inject(kind, "create", resource)
    launched = await bench.launch()
    stored = bench.model.storage.get("pods", ("runners", "r1"))
    assert stored is not None
    assert launched.uid == stored["metadata"]["uid"]
    secret = bench.model.storage.get("secrets", ("runners", "r1"))
    assert secret is not None
    assert secret["metadata"]["ownerReferences"][0]["uid"] == launched.uid


@pytest.mark.parametrize("kind", ["lost_before", "fail_before", "hang_before"])
async def test_a_create_that_is_lost_stays_reserved_until_it_is_certain(bench: Bench, kind: str) -> None:
    bench.inject(kind, "create")
    with pytest.raises(LaunchUnavailable):
        await bench.launch()
    assert bench.names() == ["r1"]
    await eventually(lambda: bench.names() == [])
    assert bench.stored("pods") == []
    assert bench.changes[-1].name == "r1"
    again = await bench.launch()  # the secret of the first attempt is used
    assert again.uid


async def test_nothing_is_known_after_a_lost_create_while_the_cluster_is_away(bench: Bench) -> None:
    bench.inject("lost_after", "create")
    away = bench.inject("lost_before", "get", times=None)
    with pytest.raises(LaunchUnavailable):
        await bench.launch()
    assert bench.stored("pods") == ["r1"]
    await eventually(lambda: (found := bench.named("r1")) and found.uid)  # by the watch
    away.times = 0
    found = await bench.launcher.get("r1")
    assert found is not None
    assert found.ticket_id == "t1"


async def test_a_throttled_create_frees_its_place_at_once(bench: Bench) -> None:
    bench.inject("throttle", "create", seconds=7)
    with pytest.raises(LaunchUnavailable) as caught:
        await bench.launch()
    assert caught.value.retry_after_seconds == 7
    assert bench.names() == []
    assert bench.stored("secrets") == []


async def test_a_full_quota(bench: Bench) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await bench.model.create("resourcequotas", "runners", quota)
    await bench.launch("r1")
    with pytest.raises(LaunchQuotaExceeded, match="exceeded quota: q"):
        await bench.launch("r2")
    assert bench.names() == bench.stored("secrets") == ["r1"]


async def test_a_template_that_the_cluster_rejects(bench: Bench) -> None:
    broken = RunnerProfile(name="b", labels=("b",), image="i", pod_template={"spec": {"containers": [{"name": "A_b"}]}})
    with pytest.raises(LaunchRejected, match="invalid"):
        await bench.launch(profile=broken)
    assert bench.names() == bench.stored("secrets") == []


async def test_missing_permissions_and_namespaces() -> None:
    rules = (Rule(verbs=("get", "list", "watch", "create"), resources=("secrets", "pods"), namespace="large"),)
    async with cluster(tokens={"t": User(name="manager", rules=rules), "a": User(name="admin")}) as bench:
        launcher = bench.make("t")
        with pytest.raises(LaunchRejected, match="forbidden"):
            await launcher.launch(request("r1"))
        with pytest.raises(LaunchRejected, match="not found"):
            await bench.make("a", namespace="missing").launch(request("r1"))
        with pytest.raises(LaunchRejected, match="not observed"):
            await launcher.launch(request("r1", RunnerProfile(name="x", labels=("x",), namespace="large")))
        with pytest.raises(LaunchUnavailable, match="Unauthorized"):
            await bench.make("wrong").launch(request("r1"))


async def test_a_pod_of_that_name_belongs_to_another_manager(bench: Bench) -> None:
    other = bench.make(instance="green")
    await other.launch(request("r1"))
    with pytest.raises(LaunchRejected, match="does not belong"):
        await bench.launch()
    assert bench.names() == []
    assert bench.stored("pods") == bench.stored("secrets") == ["r1"]


async def test_several_namespaces() -> None:
    large = RunnerProfile(name="large", labels=("large",), image="i", namespace="large")
    async with cluster() as bench:
        bench.launcher = bench.make(profiles=[LINUX, large])
        await bench.launcher.start(bench.changes.append)
        await eventually(lambda: bench.launcher.instances() is not None)
        await bench.launch("r1")
        launched = await bench.launch("r2", large)
        assert bench.names() == ["r1", "r2"]
        assert bench.model.storage.get("pods", ("large", "r2"))
        assert await bench.launcher.get("r2") == await eventually(lambda: bench.named("r2"))
        await bench.launcher.remove(launched, force=True)
        await eventually(lambda: bench.names() == ["r1"])
        assert not list(bench.model.storage.all("secrets", "large"))


# Pods in trouble


async def test_what_keeps_pods_from_starting() -> None:
    plans = {
        "r1": PodPlan(unschedulable_seconds=float("inf")),
        "r2": PodPlan(pull_failures=-1),
        "r3": PodPlan(invalid_image=True),
    }
    async with cluster(plan_pod=lambda pod, _: plans[pod["metadata"]["name"]]) as bench:
        await bench.start()
        for name in plans:
            await bench.launch(name)
        wanted = {"r1": PendingCause.UNSCHEDULABLE, "r2": PendingCause.IMAGE_ERROR, "r3": PendingCause.INVALID}
        for name, trouble in wanted.items():
            found = await bench.in_trouble(name)
            assert (found.phase, found.trouble) == (Phase.PENDING, trouble)
            assert found.reason
            await bench.launcher.remove(found)
        await eventually(lambda: bench.names() == [] and bench.stored("secrets") == [])


async def test_how_pods_end() -> None:
    plans = {
        "r1": PodPlan(oom_after=0.0),
        "r2": PodPlan(evicted_after=0.0),
        "r3": PodPlan(exit_code=7, run_seconds=0.0),
    }
    async with cluster(plan_pod=lambda pod, _: plans[pod["metadata"]["name"]]) as bench:
        await bench.start()
        for name in plans:
            await bench.launch(name, RunnerProfile(name="f", labels=("f",), image="i", pod_template=FAST))
        for name, reason in {"r1": "OOMKilled", "r2": "Evicted", "r3": "too old"}.items():
            found = await bench.in_phase(name, Phase.ENDED)
            assert reason in found.reason
            assert not found.holds_slot


async def test_a_pod_on_a_lost_node_terminates_until_it_is_removed_by_force(bench: Bench) -> None:
    launched = await bench.launch()
    await bench.in_phase("r1", Phase.RUNNING)
    stored = bench.model.storage.get("pods", ("runners", "r1"))
    assert stored is not None
    bench.model.lose_node(stored["spec"]["nodeName"])
    await bench.launcher.remove(launched)
    terminating = await eventually(lambda: (found := bench.named("r1")) and found.is_terminating and found)
    assert terminating.holds_slot
    await bench.launcher.remove(terminating)
    assert bench.names() == ["r1"]
    await bench.launcher.remove(terminating, force=True)
    await eventually(lambda: bench.names() == [])


async def test_a_pod_with_a_finalizer_is_there_until_it_is_gone(bench: Bench) -> None:
    template = {"metadata": {"finalizers": ["example.com/wait"]}, **FAST}
    launched = await bench.launch(profile=RunnerProfile(name="f", labels=("f",), image="i", pod_template=template))
    await bench.launcher.remove(launched, force=True)
    await eventually(lambda: (found := bench.named("r1")) and found.is_terminating)
    await bench.model.patch("pods", "runners", "r1", {"metadata": {"finalizers": None}})
    await eventually(lambda: bench.names() == [])


# Remove, annotate, get


async def test_remove_is_safe_when_it_is_gone(bench: Bench) -> None:
    launched = await bench.launch()
    await bench.launcher.remove(launched, force=True)
    await eventually(lambda: bench.names() == [])
    await bench.launcher.remove(launched)
    assert await bench.launcher.get("r1") is None


async def test_remove_leaves_another_pod_of_the_same_name(bench: Bench) -> None:
    first = await bench.launch()
    await bench.launcher.remove(first, force=True)
    second = await eventually_launched(bench)
    await bench.launcher.remove(first, force=True)
    stored = bench.model.storage.get("pods", ("runners", "r1"))
    assert stored is not None
    assert stored["metadata"]["uid"] == second.uid
    assert "deletionTimestamp" not in stored["metadata"]


async def eventually_launched(bench: Bench) -> Instance:
    await eventually(lambda: bench.names() == [])
    return await bench.launch()


async def test_a_runner_of_another_manager_is_neither_found_nor_removed(bench: Bench) -> None:
    other = bench.make(instance="green")
    launched = await other.launch(request("r1"))
    assert await bench.launcher.get("r1") is None
    unknown = Instance(name="r1", uid="")  # as after a launch whose response was lost
    await bench.launcher.remove(unknown, force=True)
    found = await other.get("r1")
    assert found is not None
    assert (found.uid, found.is_terminating) == (launched.uid, False)
    assert bench.stored("secrets") == ["r1"]


async def test_a_runner_is_removed_by_its_name(bench: Bench) -> None:
    await bench.launch()
    await bench.launcher.remove(Instance(name="r1", uid=""), force=True)
    await eventually(lambda: bench.names() == [])
    assert bench.stored("secrets") == []


async def test_remove_and_get_while_the_cluster_is_away(bench: Bench) -> None:
    launched = await bench.launch()
    bench.inject("lost_before", "delete")
    with pytest.raises(LaunchUnavailable):
        await bench.launcher.remove(launched)
    bench.inject("fail_before", "get")
    with pytest.raises(LaunchUnavailable):
        await bench.launcher.get("r1")


async def test_annotations(bench: Bench) -> None:
    launched = await bench.launch()
    facts = {"executed job": "99", "executed-repository": "acme/app", "org": "beta", "runner-id": "78"}
    await bench.launcher.annotate(launched, facts)
    changed = await eventually(lambda: (found := bench.named("r1")) and found.org_name == "beta" and found)
    assert changed.runner_id == 78
    stored = bench.model.storage.get("pods", ("runners", "r1"))
    assert stored is not None
    assert stored["metadata"]["annotations"]["jobyard/executed-job"] == "99"
    assert stored["metadata"]["annotations"]["jobyard/executed-repository"] == "acme/app"
    assert stored["metadata"]["labels"]["jobyard/org"] == "beta"
    bench.inject("lost_before", "patch")
    await bench.launcher.annotate(launched, facts)  # best effort


# Secrets


async def test_secrets_without_a_pod_are_swept_after_ten_minutes(bench: Bench) -> None:
    bench.inject("lost_before", "create", "pods")
    with pytest.raises(LaunchUnavailable):
        await bench.launch("r1")
    bench.inject("lost_before", "patch", "secrets")
    await bench.launch("r2")
    foreign = {"metadata": {"name": "foreign"}, "data": {}}
    await bench.model.create("secrets", "runners", foreign)
    assert bench.stored("secrets") == ["foreign", "r1", "r2"]
    assert await bench.launcher.sweep() == 0
    bench.clock.ahead_seconds = 700
    assert await bench.launcher.sweep() == 1
    assert bench.stored("secrets") == ["foreign", "r2"]
    secret = bench.model.storage.get("secrets", ("runners", "r2"))
    assert secret is not None
    assert secret["metadata"]["ownerReferences"][0]["name"] == "r2"


async def test_a_sweep_while_the_cluster_is_away_removes_nothing(bench: Bench) -> None:
    bench.inject("lost_before", "create", "pods")
    with pytest.raises(LaunchUnavailable):
        await bench.launch("r1")
    bench.clock.ahead_seconds = 700
    bench.inject("lost_before", "get", "pods")
    assert await bench.launcher.sweep() == 0
    assert bench.stored("secrets") == ["r1"]


# Checks


async def test_a_check_that_finds_nothing(bench: Bench) -> None:
    findings = await bench.launcher.check([LINUX])
    assert [each.level for each in findings] == [Level.OK, Level.OK]
    assert bench.stored("pods") == bench.stored("secrets") == []


async def test_a_check_names_missing_permissions() -> None:
    rules = (
        Rule(verbs=("get", "list", "watch", "create", "delete"), resources=("pods",), namespace="runners"),
        Rule(verbs=("*",), resources=("secrets",), namespace="runners"),
    )
    async with cluster(tokens={"t": User(name="manager", rules=rules)}) as bench:
        findings = await bench.make("t").check([LINUX])
        assert [each.message for each in findings if each.level is Level.FAIL] == [
            "missing permissions for pods: patch"
        ]
        (failed, *_) = [each for each in await bench.make("t", namespace="large").check([]) if each.level is Level.FAIL]
        assert "pods: get, list, watch, create, delete, patch; secrets: get" in failed.message


async def test_a_check_of_templates_and_namespaces(bench: Bench) -> None:
    profiles = [
        RunnerProfile(name="bad", labels=("a",), image="i", pod_template={"spec": {"containers": [{"name": "A_b"}]}}),
        RunnerProfile(name="none", labels=("a",)),
        RunnerProfile(name="far", labels=("a",), image="i", namespace="missing"),
        LINUX,
    ]
    findings = await bench.launcher.check(profiles)
    failed = {each.check: each.message for each in findings if each.level is Level.FAIL}
    assert "invalid" in failed["profile bad, cluster default"]
    assert "image" in failed["profile none, cluster default"]
    assert "does not exist" in failed["cluster default, namespace missing"]
    assert any(each.check == "profile linux, cluster default" and each.level is Level.OK for each in findings)


async def test_a_check_of_a_full_quota_is_a_warning(bench: Bench) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    await bench.model.create("resourcequotas", "runners", quota)
    findings = await bench.launcher.check([LINUX])
    assert [each.level for each in findings] == [Level.OK, Level.WARN]


async def test_a_check_of_a_cluster_that_is_away(bench: Bench) -> None:
    (finding,) = await bench.make(url="http://127.0.0.1:1").check([LINUX])
    assert finding.level is Level.FAIL
    assert "cannot be reached" in finding.message
