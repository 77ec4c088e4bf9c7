"""Overview, charts and the line of groups."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.support import ApiServer, api_server, submit_job

from jobyard.domain.job import QueueSettings
from jobyard.domain.outcome import Done, Failed
from jobyard.domain.state import Settlement, judge
from jobyard.operations.chart_log import ChartRange
from jobyard.operations.chart_writer import ChartTally, ChartWriter
from jobyard.operations.lost_workers import remember_worker
from jobyard.ports.schedule_store import WorkerInfo


def worker(**fields: Any) -> WorkerInfo:
    return WorkerInfo(**{"id": "w1", "host": "h", "pid": 1, "queues": (), "concurrency": 10, **fields})


async def run_jobs(server: ApiServer, queue: str, *, completed: int = 0, failed: int = 0) -> None:
    """Run waiting jobs as a worker does, and write what it counted."""
    tally = ChartTally()
    store = server.store
    leases = (await store.exchange("w1", [], (queue,), completed + failed, 15.0)).leases
    settlements = []
    for number, lease in enumerate(leases):
        tally.started(lease.queue, lease.job_id, lease.attempt)
        outcome = Done() if number < completed else Failed(message="boom", retry=False)
        transition = judge(lease, outcome, worker="w1")
        settlements.append(Settlement(lease.key, transition))
        tally.ended(lease.queue, 0.25, transition.to)
    writer = ChartWriter(store, tally)
    await writer.run_once()  # looks up the waits while the attempts run
    await store.exchange("w1", settlements, (queue,), 0, 15.0)
    await writer.run_once(is_last=True)


async def test_the_overview_counts_and_names_what_needs_attention() -> None:
    async with api_server() as server, server.client("admin") as client:
        for _ in range(10):
            await submit_job(client, queue="mail")
        await submit_job(client, queue="letters")
        await submit_job(client, queue="films")
        await server.store.set_paused("films", None, True)
        await server.store.heartbeat(worker(queues=("mail",), finished_per_minute={"mail": 7}), 60)
        await remember_worker(server.store, worker(id="gone"))
        await run_jobs(server, "mail", completed=6, failed=2)
        found = (await client.get("/v1/overview")).json()
        assert (found["waiting"], found["running"], found["slots"]) == (4, 0, 10)
        assert (found["finished_per_minute"], found["failed"], found["failed_last_hour"]) == (7, 2, 2)
        assert found["finished_last_hour"] == 8
        assert found["wait_p95_seconds"] is not None
        assert found["workers"] == {"live": 1, "quiet": 0, "lost": 1}
        rows = {row["name"]: row for row in found["queues"]}
        assert {name: row["status"] for name, row in rows.items()} == {
            "films": "paused",
            "letters": "no_worker",
            "mail": "working",
        }
        assert sum(each or 0 for each in rows["mail"]["sparkline"]) <= 8
        assert len(rows["mail"]["sparkline"]) == 30
        codes = [item["code"] for item in found["attention"]]
        assert codes == ["no_worker", "many_failures", "worker_lost", "queue_paused"]
        assert found["attention"][0]["command"] == "jobyard worker --queue letters"
        assert found["attention"][3]["action"]["path"] == "/v1/queues/films/resume"
        assert found["oldest_waiting"]["queue"] in rows


async def test_a_token_of_one_queue_sees_only_its_numbers() -> None:
    async with api_server() as server, server.client("admin") as admin:
        for queue in ("mail", "mail", "letters"):
            await submit_job(admin, queue=queue)
        async with server.client("viewer", queues=("mail",)) as viewer:
            found = (await viewer.get("/v1/overview")).json()
            assert (found["waiting"], [row["name"] for row in found["queues"]]) == (2, ["mail"])
            assert (await viewer.get("/v1/charts", params={"queue": "letters"})).status_code == 404
            assert (await viewer.get("/v1/queues/letters/line")).status_code == 404
        async with server.client("viewer", groups=("acme",)) as viewer:
            for path in ("/v1/overview", "/v1/charts", "/v1/queues/mail/line"):
                assert (await viewer.get(path)).json()["code"] == "out_of_scope"
        async with server.client("submitter") as submitter:
            assert (await submitter.get("/v1/overview")).status_code == 403


@pytest.mark.parametrize("chart_range", ["5m", "1h", "24h"])
async def test_a_chart_merges_what_processes_wrote(chart_range: str) -> None:
    async with api_server() as server, server.client("viewer") as client:
        for queue in ("a", "b"):
            tally = ChartTally()
            for _ in range(5):
                tally.started(queue, "unknown", 1)
            writer = ChartWriter(server.store, tally, gauges=server.dependencies.chart_gauges)
            await writer.run_once(is_last=True)
        # Intervals appear when they have ended and were written: look from later.
        charts = server.dependencies.charts
        history = await charts.history(ChartRange(chart_range))
        resolution = history.resolution
        later = await server.store.now() + resolution.interval_ms + round(1000 * resolution.write_seconds)
        assert sum(interval.tally(None).started for _, interval in history.window(later) if interval) == 10
        view = (await client.get("/v1/charts", params={"range": chart_range, "queue": "a"})).json()
        assert view["queue"] == "a"
        assert len(view["at"]) == len(view["finished"]) == len(view["wait_p99_seconds"]) == resolution.points
        assert view["at"] == sorted(view["at"])
        assert view["finished"][0] is None  # before anything was written: unknown, not zero


async def test_the_chart_history_is_bounded_and_survives_a_restart() -> None:
    async with api_server() as server:
        for _ in range(120):
            tally = ChartTally()
            tally.started("a", "unknown", 1)
            await ChartWriter(server.store, tally).run_once(is_last=True)
        again = ApiServer(server.store, ())
        assert (await again.dependencies.charts.recent(ChartRange.DAY)).started == 120


async def test_the_line_says_whose_turn_it_is() -> None:
    async with api_server() as server, server.client("operator") as client:
        await server.store.configure("runners", QueueSettings(max_running=3, max_per_group=1))
        for group in ("acme", "acme", "blue", "blue", "core", "done"):
            await submit_job(client, queue="runners", group=group)
        await server.store.exchange("w", [], ("runners",), 1, 60.0)  # acme
        await client.post("/v1/queues/runners/groups/blue/pause")
        await client.put("/v1/queues/runners/groups/done/limit", json={"limit": 0})
        line = (await client.get("/v1/queues/runners/line")).json()
        groups = {group["name"]: group for group in line["groups"]}
        assert [group["name"] for group in line["groups"]] == ["blue", "core", "done", "acme"]
        assert {name: (group["status"], group["turn"]) for name, group in groups.items()} == {
            "blue": ("paused", None),
            "core": ("next", 1),
            "done": ("blocked", None),
            "acme": ("full", None),
        }
        assert (line["next_group"], line["room"], line["left_out"]) == ("core", 2, 0)
        assert {group["limit_origin"] for group in line["groups"]} == {"own", "queue"}
        short = (await client.get("/v1/queues/runners/line", params={"limit": 1})).json()
        assert (len(short["groups"]), short["left_out"]) == (1, 3)
        assert (await client.get("/v1/queues/nowhere/line")).status_code == 404
