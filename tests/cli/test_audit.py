"""`jobyard audit`: recount, repair, and the bound of the recount in `doctor`."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.cli.support import Shop, shop

from jobyard.cli.findings import audit

__all__ = ["shop"]


def break_counts() -> None:
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute("UPDATE jobyard_queue SET waiting = waiting + 5")


def test_repair_mends_and_lists_what_an_audit_finds(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    assert "ok   audit: all counts match the jobs" in shop.run("audit").stdout
    break_counts()
    found = shop.run("audit")
    assert found.exit_code == 1
    assert "jobyard audit --repair" in found.stdout
    repaired = shop.run("audit", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert "ok   repaired: Due jobs of queue mail: 6 kept, 1 counted." in repaired.stdout
    assert shop.json("audit", "--repair")["level"] == "ok"


def test_doctor_recounts_a_large_store_on_request_only(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_JOBS", 0)
    shop.enqueue("send", {"to": "a"})
    break_counts()
    assert "ok   audit: not done: it would read" in shop.run("doctor").stdout
    found = shop.run("doctor", "--full")
    assert found.exit_code == 1
    assert "fail audit: Due jobs of queue mail: 6 kept, 1 counted." in found.stdout
