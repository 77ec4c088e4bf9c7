"""Health: liveness, readiness and the failed checks."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, serving
from tests.support import PATIENCE_SECONDS, Watched, eventually

from jobyard import Context, Jobyard
from jobyard.api.schemas.events import HealthView
from jobyard.config.store_factory import make_store
from jobyard.errors import StoreFull, StoreUnavailable
from jobyard.observability.metrics import Metrics
from jobyard.operations.health import (
    CACHE_SECONDS,
    CLAIM_SECONDS,
    MIGRATIONS_AGAIN_SECONDS,
    STORE_SECONDS,
    WRITE_AGAIN_SECONDS,
    Health,
)
from jobyard.operations.store_watch import StoreWatch
from jobyard.ports.clock import SystemClock
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Migration, Store
from jobyard.server.health_app import serving_health
from jobyard.server.prometheus import MetricsExporter
from jobyard.server.routes import health
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


class Now:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class WorkerStatus:
    """A worker with what the readiness check needs."""

    def __init__(self, running: int = 0) -> None:
        self.last_exchange: float | None = None
        self.running = running
        self.quiet = False

    def info(self) -> WorkerInfo:
        return WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=2, running=self.running, quiet=self.quiet)


@pytest.fixture
def store() -> Watched:
    return Watched(MemoryStore(SystemClock()))


def failed(view: HealthView) -> list[str]:
    return [check.name for check in view.checks if not check.ok]


async def test_server_is_live_and_ready(store: Watched) -> None:
    api = ApiServer(store.as_store(), [health.ROUTES])
    async with api.client() as client:
        assert (await client.get("/livez")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        status = (await client.get("/readyz?verbose")).json()
        assert [check["name"] for check in status["checks"]] == ["not_draining", "store", "migrations", "writes"]
        assert all(check["ok"] for check in status["checks"])
        assert (await client.get("/health")).json()["version"]


async def test_draining_server_is_not_ready(store: Watched) -> None:
    api = ApiServer(store.as_store(), [health.ROUTES])
    async with api.client() as client:
        api.dependencies.draining.set()
        response = await client.get("/readyz?verbose")
        assert response.status_code == 503
        assert [check["name"] for check in response.json()["checks"] if not check["ok"]] == ["not_draining"]
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/livez")).status_code == 200


async def test_unavailable_store_is_not_ready_until_it_returns(store: Watched) -> None:
    now = Now()
    watch = Health(store.as_store(), lambda: False, clock=now)
    store.failing = StoreUnavailable("secret-host does not answer")
    status = await watch.ready()
    assert status.status == "unavailable"
    assert "store_unavailable" in status.reason
    assert "secret-host" not in status.reason
    store.failing = None
    now.seconds += CACHE_SECONDS
    assert (await watch.ready()).status == "ok"


async def test_hanging_store_is_not_ready(monkeypatch: pytest.MonkeyPatch, store: Watched) -> None:
    monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", 0.05)

    async def hang(collection: str, key: str) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(store, "fetch", hang, raising=False)
    status = await Health(store.as_store(), lambda: False).ready()
    assert status.status == "unavailable"
    assert failed(status) == ["store"]
    assert "0.05 s" in status.reason
    assert STORE_SECONDS < 10  # probes time out after about 10 s


async def test_removed_database_file_is_not_ready(tmp_path: Path) -> None:
    store, now = make_store(f"sqlite:///{tmp_path}/jobs.db"), Now()
    await store.open()
    watch = Health(store, lambda: False, clock=now)
    assert (await watch.ready()).status == "ok"
    for file in tmp_path.iterdir():
        file.unlink()
    now.seconds += MIGRATIONS_AGAIN_SECONDS
    status = await watch.ready()
    assert failed(status) == ["store"]
    assert "(store_unavailable)" in status.reason
    assert [check.name for check in status.checks] == ["not_draining", "store"]
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.queues()
    await store.close()


async def test_missing_migrations_are_not_ready(monkeypatch: pytest.MonkeyPatch, store: Watched) -> None:
    async def migrations() -> list[Migration]:
        return [Migration(1, "kernel", "", True), Migration(2, "more", "", False)]

    monkeypatch.setattr(store, "migrations", migrations, raising=False)
    status = await Health(store.as_store(), lambda: False).ready()
    assert failed(status) == ["migrations"]
    assert "jobyard migrate" in status.reason


async def test_store_checks_are_cached_for_a_second(store: Watched) -> None:
    now = Now()
    watch = Health(store.as_store(), lambda: False, clock=now)
    await asyncio.gather(*(watch.ready() for _ in range(50)))
    assert store.calls["fetch"] == 1
    now.seconds += CACHE_SECONDS
    await watch.ready()
    assert store.calls["fetch"] == 2


async def test_worker_without_claims_is_not_ready(store: Watched) -> None:
    now, worker = Now(), WorkerStatus()
    watch = Health(store.as_store(), lambda: False, worker, now)
    assert failed(await watch.ready()) == ["claiming"]
    worker.last_exchange = now.seconds
    assert (await watch.ready()).status == "ok"
    now.seconds += CLAIM_SECONDS + 1
    assert failed(await watch.ready()) == ["claiming"]
    worker.running = 2  # no free slots, so it does not claim
    assert (await watch.ready()).status == "ok"
    worker.running, worker.quiet = 0, True  # quiet, so it does not claim
    assert (await watch.ready()).status == "ok"


# How long a locked store is waited for: a busy machine must be able to read it in this time.
LOCKED_SECONDS = 1.0


async def test_a_locked_store_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    store, now, worker = make_store(f"sqlite:///{tmp_path}/jobs.db"), Now(), WorkerStatus()
    await store.open()
    watch = Health(store, lambda: False, worker, now)
    assert failed(await watch.ready()) == ["claiming"]  # it has not begun, and the store can be written
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", LOCKED_SECONDS)
        for _ in range(2):
            status = await watch.ready()
            assert failed(status) == ["claiming", "writes"]
            assert status.reason.startswith("The store is locked: another process has held its lock")
        other.execute("ROLLBACK")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    worker.last_exchange = now.seconds
    assert (await watch.ready()).status == "ok"
    await store.close()


async def test_a_server_without_workers_is_not_ready_while_the_store_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    store, now = make_store(f"sqlite:///{tmp_path}/jobs.db"), Now()
    await store.open()
    watch = Health(store, lambda: False, clock=now)
    assert (await watch.ready()).status == "ok"
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", LOCKED_SECONDS)
        now.seconds += WRITE_AGAIN_SECONDS
        status = await watch.ready()
        assert failed(status) == ["writes"]
        assert status.reason.startswith("The store is locked: another process has held its lock")
        other.execute("ROLLBACK")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    assert (await watch.ready()).status == "ok"
    await store.close()


async def test_the_log_says_when_the_store_is_locked_and_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    store, now = make_store(f"sqlite:///{tmp_path}/jobs.db"), Now()
    await store.open()
    watch = StoreWatch(Health(store, lambda: False, clock=now), now)
    await watch.run_once()
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", LOCKED_SECONDS)
        for _ in range(2):
            now.seconds += WRITE_AGAIN_SECONDS
            await watch.run_once()
        other.execute("ROLLBACK")
        monkeypatch.setattr("jobyard.operations.health.STORE_SECONDS", PATIENCE_SECONDS)
    now.seconds += 2
    await watch.run_once()
    now.seconds += WRITE_AGAIN_SECONDS
    await watch.run_once()
    said = [record.getMessage() for record in caplog.records if record.name == "jobyard.store"]
    # The store itself tells of a long wait for the lock, as there may be on a busy machine.
    of_store = [each for each in said if "Waiting for it" not in each]
    assert of_store == [
        "The store is locked: another process has held its lock for more than 1 s.",
        "the store takes writes again, after 7 s",
    ]
    await store.close()


async def test_a_store_that_rejects_writes_is_named_as_the_cause(store: Watched) -> None:
    watch = Health(store.as_store(), lambda: False, WorkerStatus())

    async def put(*_: object, **__: object) -> None:
        raise StoreFull("secret-host is full")

    store.put = put  # type: ignore[attr-defined]
    status = await watch.ready()
    assert failed(status) == ["claiming", "writes"]
    assert status.reason == "The store accepts no writes (store_full)."


async def test_missing_heartbeats_are_not_ready() -> None:
    clock, now = ManualClock(), Now()
    store = MemoryStore(clock)
    watch = Health(store, lambda: False, clock=now)
    assert (await watch.ready()).status == "ok"
    watch.needs_workers = True
    now.seconds += CACHE_SECONDS
    assert failed(await watch.ready()) == ["workers"]
    stranger = WorkerInfo(id="s", host="elsewhere", pid=1, queues=(), concurrency=2)
    await store.heartbeat(stranger, 12)
    now.seconds += CACHE_SECONDS
    assert (await watch.ready()).status == "unavailable"
    await store.heartbeat(WorkerInfo(id="w", host=socket.gethostname(), pid=2, queues=(), concurrency=2), 12)
    now.seconds += CACHE_SECONDS
    status = await watch.ready()
    assert status.status == "ok"
    clock.advance(12)  # it was stopped, or hangs
    now.seconds += CACHE_SECONDS
    assert (await watch.ready()).status == "unavailable"


async def test_a_worker_serves_its_health_and_metrics(tmp_path: Path) -> None:
    counted = Metrics()
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db", observer=counted)

    @yard.job()
    async def quick(ctx: Context) -> None: ...

    async with yard:
        worker = yard.worker()
        watch = Health(yard.store, lambda: False, worker)
        async with (
            serving_health(watch, MetricsExporter(yard.store, counted), "127.0.0.1", 0) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            async with worker:

                async def is_ready() -> bool:
                    return (await client.get("/readyz")).status_code == 200

                await eventually(is_ready)
                assert (await client.get("/livez")).status_code == 200
                assert (await client.get("/health")).json()["checks"][-1] == {"name": "claiming", "ok": True}
                for _ in range(3):
                    await (await yard.enqueue("quick")).result(60)

                async def is_counted() -> bool:
                    finished = 'jobyard_jobs_finished_total{kind="quick",queue="default",state="COMPLETED"} 3.0'
                    return finished in (await client.get("/metrics")).text

                await eventually(is_counted)
            assert (await client.get("/nothing")).status_code == 404


async def test_metrics_require_an_unrestricted_token(store: Watched) -> None:
    api = ApiServer(store.as_store(), [health.ROUTES])
    async with api.client() as client:
        assert (await client.get("/metrics")).status_code == 401
    async with api.client("submitter") as client:
        assert (await client.get("/metrics")).status_code == 403
    async with api.client("viewer", queues=["a"]) as client:
        assert (await client.get("/metrics")).status_code == 403
    async with api.client("viewer") as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert "jobyard_workers 0.0" in answer.text


async def test_health_over_a_real_connection(store: Watched) -> None:
    api = ApiServer(cast(Store, store), [health.ROUTES])
    async with serving(api.app) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        answer = await client.get("/readyz?verbose")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
