"""The view of the pods while watches break, lists lie and the cluster is away."""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Any

import pytest
from tests.github.kubernetes_bench import Bench, bench, cluster, request, short_waits
from tests.support import eventually

from jobyard.demo.fake_kubernetes import Settings
from jobyard.github.errors import LaunchUnavailable
from jobyard.github.kubernetes import pod_view
from jobyard.github.launcher import Phase

__all__ = ["bench", "short_waits"]


# The view


async def test_a_cluster_that_is_away_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as bench:
        away = bench.inject("fail_before", "list", times=None, status_code=503)
        await bench.launcher.start(bench.changes.append)
        with caplog.at_level(logging.WARNING, "jobyard.github"):
            await eventually(lambda: "currently unable" in caplog.text)
        assert bench.launcher.instances() is None
        away.times = 0
        await eventually(lambda: bench.names() == [])


@pytest.mark.parametrize("variant", ["http", "event"])
async def test_a_deletion_that_the_watch_missed(variant: Any) -> None:
    async with cluster(settings=Settings(gone_variant=variant)) as bench:
        await bench.start()
        for name in ("r1", "r2"):
            await bench.launch(name)
        await eventually(
            lambda: all((found := bench.named(each)) and found.phase is Phase.RUNNING for each in ("r1", "r2"))
        )
        away = bench.inject("fail_before", "watch", times=None)
        bench.model.cut_watches()
        await eventually(lambda: bench.model.open_watches == 0)
        stored = bench.model.storage.get("pods", ("runners", "r1"))
        assert stored is not None
        bench.model.cluster.remove_pod(stored)
        bench.model.compact()
        assert bench.names() == ["r1", "r2"]
        away.times = 0
        await eventually(lambda: bench.names() == ["r2"])
        assert bench.changes[-1].name == "r1"
        assert bench.changes[-1].is_terminating
        assert sum(each.name == "r2" and each.phase is Phase.RUNNING for each in bench.changes) == 1


@pytest.mark.parametrize("kind", ["empty_list", "stale_list"])
async def test_an_incomplete_list_frees_nothing(bench: Bench, kind: str) -> None:
    for name in ("r1", "r2", "r3"):
        await bench.launch(name)
    await eventually(lambda: len(bench.changes) >= 3)
    lying = bench.inject(kind, "list", times=1000, revisions=1000)
    bench.inject("gone", "watch")
    bench.model.cut_watches()
    await bench.until_tried(lying, 3)
    assert bench.names() in (["r1", "r2", "r3"], None)
    assert not any(each.is_terminating for each in bench.changes)
    lying.times = 0
    await eventually(lambda: bench.model.open_watches == 1 and bench.names() == ["r1", "r2", "r3"])


async def test_an_outage_makes_the_view_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_view, "RECONNECT_SECONDS", 0.3)
    await bench.launch()
    faults = [bench.inject("lost_before", verb, times=None) for verb in ("watch", "list")]
    bench.model.cut_watches()
    await eventually(lambda: bench.launcher.instances() is None)
    for fault in faults:
        fault.times = 0
    await eventually(lambda: bench.names() == ["r1"])


async def test_a_watch_that_is_cut_goes_on_where_it_was(bench: Bench) -> None:
    lists = bench.inject("slow", "list", times=1000, seconds=0.0)
    for number in range(10):
        bench.model.cut_watches()
        await bench.launch(f"r{number}")
    await eventually(
        lambda: all((found := bench.named(f"r{each}")) and found.phase is Phase.RUNNING for each in range(10))
    )
    assert lists.times is not None
    assert lists.times >= 998  # the versions were known, so hardly any list was needed


async def test_a_watch_without_events_ends_and_is_renewed() -> None:
    async with cluster() as bench:
        bench.launcher = bench.make(watch_seconds=0.5)
        watches = bench.inject("slow", "watch", times=1000, seconds=0.0)
        await bench.launcher.start(bench.changes.append)
        await bench.until_tried(watches, 3)
        await bench.launch()
        await bench.in_phase("r1", Phase.RUNNING)


async def test_a_restarted_manager_finds_its_runners(bench: Bench) -> None:
    await bench.launch()
    await bench.launcher.stop()
    await bench.launcher.stop()
    assert bench.launcher.instances() is None
    bench.launcher = bench.make()
    await bench.start()
    found = bench.named("r1")
    assert found is not None
    assert (found.org_name, found.ticket_id, found.runner_id, found.requested_job_id) == ("acme", "t1", 77, 12)


async def test_two_managers_in_one_namespace_do_not_see_each_other(bench: Bench) -> None:
    await bench.make(instance="green").launch(request("g1"))
    await bench.launch("b1")
    await eventually(lambda: any(each.phase is Phase.RUNNING for each in bench.changes))
    assert bench.names() == ["b1"]


# Everything at once


@pytest.mark.parametrize("seed", [1, 2])
async def test_after_many_faults_the_view_is_what_the_cluster_has(seed: int) -> None:
    rng = random.Random(seed)
    async with cluster(rng=random.Random(seed)) as bench:
        bench.launcher = bench.make(timeout=0.2, watch_seconds=1.0)
        await bench.start()
        kinds = ["lost_before", "lost_after", "fail_before", "fail_after", "throttle", "cut", "gone", "empty_list"]
        for kind in kinds:
            bench.inject(kind, "*", "*", times=None, probability=0.1, seconds=0.2)
        attempted: set[str] = set()
        for number in range(30):
            name = f"r{number}"
            attempted.add(name)
            with contextlib.suppress(LaunchUnavailable):
                await bench.launch(name)
            if rng.random() < 0.3:
                bench.model.cut_watches()
            if rng.random() < 0.2:
                bench.model.compact()
            known = bench.launcher.instances()
            if known is not None:
                assert set(bench.stored("pods")) <= {each.name for each in known} <= attempted
            for instance in known or ():
                if rng.random() < 0.03:
                    with contextlib.suppress(LaunchUnavailable):
                        await bench.launcher.remove(instance, force=True)
        bench.model.faults.api.clear()
        await eventually(lambda: bench.names() == bench.stored("pods"), 30)
        assert bench.stored("pods")
        bench.clock.ahead_seconds = 700
        await bench.launcher.sweep()
        assert bench.stored("secrets") == bench.stored("pods")
