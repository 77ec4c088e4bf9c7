"""`jobyard migrate`: plan, apply, print."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.support import Shop, shop

__all__ = ["shop"]


def test_a_plan_changes_nothing(shop: Shop) -> None:
    result = shop.run("migrate", "--plan")
    assert result.exit_code == 0, result.output
    assert ": to apply" in result.stdout
    assert "to apply: jobyard --store sqlite:///shop.db migrate" in result.stdout
    assert not Path("shop.db").exists()
    [first, *_] = shop.json("migrate", "--plan")["migrations"]
    assert (first["number"], first["applied"], first["applied_now"]) == (1, False, False)


def test_migrate_applies_missing_migrations_once(shop: Shop) -> None:
    [first, *_] = shop.json("migrate")["migrations"]
    assert (first["applied"], first["applied_now"]) == (True, True)
    [first, *_] = shop.json("migrate")["migrations"]
    assert (first["applied"], first["applied_now"]) == (True, False)
    again = shop.run("migrate").stdout
    assert "0001 kernel: already applied" in again
    assert "sqlite:///shop.db is up to date." in again
    assert shop.json("queues")["queues"] == []


def test_printed_sql_creates_the_schema(shop: Shop) -> None:
    text = shop.run("migrate", "--sql").stdout
    shop.json("migrate")
    with closing(sqlite3.connect("by-hand.db")) as by_hand, closing(sqlite3.connect("shop.db")) as ours:
        by_hand.executescript(text)
        query = "SELECT name FROM sqlite_master WHERE name LIKE 'jobyard%' ORDER BY name"
        made = {row[0] for row in ours.execute(query)}
        assert {row[0] for row in by_hand.execute(query)} >= made - {"jobyard_schema"}
    assert shop.run("migrate", "--sql").stdout == ""
    assert shop.json("migrate", "--sql")["missing"] == []


@pytest.mark.parametrize("options", [[], ["--plan"], ["--sql"]])
def test_a_schema_of_a_newer_jobyard_is_not_up_to_date(shop: Shop, options: list[str]) -> None:
    shop.json("migrate")
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("UPDATE jobyard_schema SET version = 9999")
        connection.commit()
    result = shop.run("migrate", *options)
    assert result.exit_code == shop.run("queues").exit_code != 0
    assert "version 9999" in result.stderr
    assert "up to date" not in result.output


def test_a_store_without_a_schema(shop: Shop) -> None:
    result = shop.run("--store", "memory://", "migrate")
    assert result.exit_code == 0
    assert "memory:// has no schema" in result.stdout
    assert shop.run("migrate", "--plan", "--sql").exit_code == 2
