"""Check, doctor and bench."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.support import Shop, shop
from tests.servers.certificate import Certificate

from jobyard import Jobyard
from jobyard.cli.commands.bench import QUEUE
from jobyard.domain.instant import Instant
from jobyard.stores.sqlite import diagnostics

__all__ = ["shop"]


def findings(shop: Shop, command: str, code: int) -> dict[str, list[dict[str, Any]]]:
    result = shop.run(command, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        found.setdefault(finding["what"], []).append(finding)
    return found


def test_check_lists_kinds_and_queues(shop: Shop) -> None:
    answer = shop.json("check")
    assert answer["level"] == "ok"
    assert answer["kinds"]["send"] == {"queue": "mail", "parameters": ["to", "copies"]}
    assert answer["queues"] == ["mail"]
    assert "ok   kind: send(to, copies) in queue mail" in shop.run("check").stdout


def test_check_warns_about_no_handlers_and_unknown_settings(shop: Shop) -> None:
    Path("empty_app.py").write_text("from jobyard import Jobyard\nyard = Jobyard('sqlite:///empty.db')\n")
    result = shop.run("check", JOBYARD_APP="empty_app:yard", JOBYARD_LEASE_SECOND="1")
    assert result.exit_code == 0
    assert "warn kind: the app declares no handler" in result.stdout
    assert "Did you mean JOBYARD_LEASE_SECONDS?" in result.stdout


def test_check_finds_what_a_server_would_not_start_with(shop: Shop, tmp_path: Path) -> None:
    Path("jobyard.yaml").write_text("server: {tls_cert: absent.pem}\nalerts: {urls: [nonsense]}\n")
    found = findings(shop, "check", 1)
    assert [found[what][0]["level"] for what in ("certificate", "alerts")] == ["fail", "fail"]
    certificate = Certificate(tmp_path)
    Path("jobyard.yaml").write_text(
        f"server: {{tls_cert: {certificate.chain}, tls_key: {certificate.key}}}\nalerts: {{urls: ['json://127.0.0.1']}}\n"
    )
    found = findings(shop, "check", 0)
    assert [found[what][0]["level"] for what in ("certificate", "alerts")] == ["ok", "ok"]


def test_doctor_on_a_healthy_store(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    shop.work_off()
    found = findings(shop, "doctor", 0)
    levels = {what: found[what][0]["level"] for what in found}
    assert levels.pop("workers") == "warn"
    levels.pop("disk")
    assert set(levels.values()) == {"ok"}
    assert set(levels) == {"store", "schema", "integrity", "audit", "leases", "waiting", "dead letters", "retention"}


def test_doctor_reports_a_cap_that_removes_jobs_early(shop: Shop) -> None:
    for _ in range(4):
        shop.enqueue("send", {"to": "a"})
    shop.run("queues", "set", "mail", "--keep-completed", "1", "--keep-at-most", "2")
    shop.work_off()
    shop.do(lambda yard: yard.store.prune())
    [finding] = findings(shop, "doctor", 0)["retention"]
    assert finding["level"] == "warn"
    assert "queue mail holds more than keep_at_most = 2 finished jobs: 2 jobs removed before their time" in str(finding)
    assert "jobyard queues set mail --keep-at-most 4" in str(finding)


def test_doctor_names_paused_queues_dead_letters_and_long_waits(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.enqueue("fail")
    shop.work_off()
    waiting = shop.enqueue("send", {"to": "a"})
    shop.run("queues", "pause", "mail")
    monkeypatch.setattr("jobyard.cli.commands.doctor.OLD_SECONDS", 0.0)
    found = findings(shop, "doctor", 0)
    assert found["paused"][0]["cure"] == "jobyard queues resume mail"
    assert found["dead letters"][0]["says"] == "1 in queue mail"
    assert found["waiting"][0]["cure"] == f"jobyard explain {waiting}"
    assert "→ jobyard queues resume mail" in shop.run("doctor").stdout


def test_doctor_does_not_name_the_oldest_job_beyond_its_limit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.enqueue("send", {"to": "a"})
    newest = shop.enqueue("send", {"to": "a"})
    monkeypatch.setattr("jobyard.cli.commands.doctor.LOOKED_AT_MOST", 1)
    says = findings(shop, "doctor", 0)["waiting"][0]["says"]
    assert "longer than" in says
    assert newest in says


def test_doctor_reports_orphaned_jobs_and_queues_without_workers(shop: Shop) -> None:
    shop.enqueue("hang")
    shop.enqueue("send", {"to": "a"})

    async def die(yard: Jobyard) -> Instant:
        await yard.store.exchange("gone", [], ["slow"], 1, 600)
        worker = yard.worker(queues=["slow"], name="alive")
        await worker.start()
        info = worker.info()
        await worker.stop()
        await yard.store.heartbeat(info, 600)
        return await yard.store.now()

    shop.do(die)
    found = findings(shop, "doctor", 0)
    assert found["leases"][0]["level"] == "warn"
    assert "queue mail" in found["workers"][1]["says"]


def test_doctor_fails_on_wrong_counts(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute("UPDATE jobyard_queue SET waiting = 7")
    found = findings(shop, "doctor", 1)
    assert found["audit"][0]["level"] == "fail"
    assert findings(shop, "check", 1)["audit"][0]["level"] == "fail"


def test_doctor_fails_without_a_store(shop: Shop) -> None:
    found = findings(shop, "doctor", 1)
    assert "shop.db" in found["store"][0]["says"]
    Path("shop.db").write_bytes(b"not a database" * 1000)
    assert "shop.db" in findings(shop, "doctor", 1)["store"][0]["says"]


def test_doctor_checks_disk_space(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.enqueue("send", {"to": "a"})
    monkeypatch.setattr(diagnostics, "LOW_BYTES", 1 << 62)
    disk = findings(shop, "doctor", 0)["disk"][0]
    assert (disk["level"], "file size: under 1 MiB" in disk["says"]) == ("warn", True)
    monkeypatch.setattr(diagnostics, "CRITICAL_BYTES", 1 << 62)
    assert findings(shop, "doctor", 1)["disk"][0]["level"] == "fail"


def test_bench_measures_a_temporary_file(shop: Shop) -> None:
    speed = shop.json("bench", "--jobs", "500")
    assert speed["jobs"] == 500
    assert min(speed["inserted_per_second"], speed["drained_per_second"], speed["latency_p50_ms"]) > 0
    assert not Path("shop.db").exists()


def test_bench_on_a_store_does_not_touch_its_jobs(shop: Shop) -> None:
    job = shop.enqueue("send", {"to": "a"})
    text = shop.run("bench", "--jobs", "200", "--this-store").stdout
    assert "sqlite:///shop.db" in text
    assert "latency" in text
    assert [each["id"] for each in shop.json("jobs", "list")["jobs"]] == [job]
    counts = {queue["name"]: queue for queue in shop.json("queues")["queues"]}
    assert counts[QUEUE]["waiting"] + counts[QUEUE]["completed"] + counts[QUEUE]["running"] == 0
