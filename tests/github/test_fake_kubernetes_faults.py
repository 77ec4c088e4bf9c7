"""Requests to the fake Kubernetes fail as configured, and the same seed gives the same history."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.github.fake_cluster import (
    NAMESPACE,
    Json,
    in_phase,
    make_cluster,
    names,
    pod,
    refusal,
    states,
    still,
    take,
    until,
    virtual,
)

from jobyard.demo.fake_kubernetes import ApiFault, ConnectionLostError, ContainerEnvironment, Faults


@virtual
async def test_faults_before_and_after_the_commit() -> None:
    cluster = still()
    for kind, stored in (("fail_before", False), ("fail_after", True), ("lost_before", False), ("lost_after", True)):
        cluster.inject(ApiFault(kind=kind, verb="create", resource="pods", times=1))  # type: ignore[arg-type]
        name = kind.replace("_", "-")
        with pytest.raises(Exception) as raised:
            await cluster.create("pods", NAMESPACE, pod(name))
        assert isinstance(raised.value, ConnectionLostError) is kind.startswith("lost")
        assert (name in names(await cluster.list("pods"))) is stored
    cluster.inject(ApiFault(kind="hang_after", times=1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cluster.create("pods", NAMESPACE, pod("hung")), 10)
    assert "hung" in names(await cluster.list("pods"))
    cluster.inject(ApiFault(kind="throttle", seconds=7, times=1))
    throttled = await refusal(cluster.list("pods"))
    assert (throttled.status_code, throttled.retry_after) == (429, 7)
    assert throttled.body["details"] == {"retryAfterSeconds": 7}


@virtual
async def test_lists_can_be_empty_or_stale() -> None:
    cluster = still()
    await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.create("pods", NAMESPACE, pod("b"))
    cluster.faults.api = [ApiFault(kind="empty_list", times=1)]
    assert names(await cluster.list("pods")) == []
    cluster.faults.api = [ApiFault(kind="stale_list", revisions=1, times=1)]
    stale = await cluster.list("pods")
    assert (names(stale), int(stale["metadata"]["resourceVersion"])) == (["a"], cluster.storage.revision - 1)
    assert names(await cluster.list("pods")) == ["a", "b"]


@virtual
async def test_watches_are_cut_and_go_gone_at_random() -> None:
    cluster = still()
    cluster.faults.api = [ApiFault(kind="cut", seconds=5, times=1)]
    with pytest.raises(ConnectionLostError):
        await take(cluster, 1)
    cluster.faults.api = [ApiFault(kind="gone", verb="watch", times=1)]
    cluster.settings.gone_variant = "http"
    assert (await refusal(take(cluster, 1, resource_version="1"))).status_code == 410


@virtual
async def test_a_silent_watch_stays_open_without_a_word() -> None:
    cluster = still()
    cluster.faults.api = [ApiFault(kind="silent", seconds=5, times=1)]
    watch = cluster.watch("pods", NAMESPACE, allow_bookmarks=True, timeout_seconds=30)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(watch), 3600)


@virtual
async def test_an_exception_in_a_container_is_exit_code_1() -> None:
    async def broken(item: Json, environment: ContainerEnvironment) -> int:
        raise ValueError("broken")

    cluster = make_cluster(run_container=broken)
    await cluster.create("pods", NAMESPACE, pod("a"))
    failed = await until(cluster, in_phase("Failed"))
    assert states(failed) == {"runner": ("terminated", 1)}
    assert [str(problem) for problem in cluster.container_errors] == ["broken"]
    await cluster.close()


@virtual
async def test_nodes_that_are_lost_at_random_return() -> None:
    faults = Faults()
    faults.pods.node_lost, faults.pods.node_lost_seconds = 1.0, 100
    cluster = make_cluster(faults=faults, schema_check=None)
    await cluster.create("pods", NAMESPACE, pod("a"))
    node = (await until(cluster, in_phase("Running")))["spec"]["nodeName"]
    failed = await until(cluster, in_phase("Failed"))
    assert states(failed) == {"runner": ("terminated", 137)}
    assert cluster.cluster.nodes.by_name[node].ready
    await cluster.close()


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[Json]:
        seen: list[Json] = []

        @virtual
        async def play() -> None:
            faults = Faults()
            faults.pods.killed = faults.pods.slow_start = faults.pods.image_pull = faults.pods.evicted = 0.5
            cluster = make_cluster(rng=random.Random(seed), faults=faults, schema_check=None)
            for number in range(10):
                await cluster.create("pods", NAMESPACE, pod(f"p{number}"))
            seen.extend([event async for event in cluster.watch("pods", timeout_seconds=300)])
            await cluster.close()

        play()
        return seen

    assert history(3) == history(3)
    assert history(3) != history(4)
