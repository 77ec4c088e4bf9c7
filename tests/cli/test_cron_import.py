"""`jobyard cron import` from SQLite and PostgreSQL tables of jobu."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.cli.support import Shop, error_code, shop

from jobyard.cli.cron_table import COLUMNS

__all__ = ["shop"]

# The columns of jobu's own table, and the shorter names that others have.
LONG = (
    "id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT, cron_expression TEXT NOT NULL, "
    "handler_name TEXT NOT NULL, handler_params {json}, is_enabled {flag}, allow_overlap {flag}, "
    "max_retry INTEGER, timeout_seconds INTEGER, created_at TIMESTAMP, updated_at TIMESTAMP"
)
SHORT = (
    "name TEXT, expression TEXT, handler TEXT, params {json}, max_retry INTEGER, timeout_seconds INTEGER, "
    "is_enabled {flag}"
)
NAMES = ("id", "name", "cron_expression", "handler_name", "handler_params", "is_enabled", "allow_overlap", "max_retry",
         "timeout_seconds")  # fmt: skip
ROWS: list[tuple[Any, ...]] = [
    (1, "nightly", "0 2 * * *", "send", '{"to": "ann"}', True, True, 5, 3600),
    (2, "paused", "*/5 * * * *", "send", '{"to": "bob"}', False, False, 0, None),
    (3, "six", "*/5 * * * * 30", "send", '{"to": "ann"}', True, True, 3, 60),
    (4, "wrong", "61 * * * *", "send", '{"to": "ann"}', True, True, 3, 60),
    (5, "stranger", "@daily", "old_send", '{"to": "ann"}', True, True, 3, 60),
    (6, "misfit", "@daily", "send", '{"from": "ann"}', True, True, 3, 60),
    (7, "list", "@daily", "send", "[1]", True, True, 3, 60),
    (8, "hasty", "@daily", "send", '{"to": "ann"}', True, True, 3, 0),
]


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    """The database of another program."""
    if request.param == "sqlite":
        yield OldSqlite(tmp_path / "old.db")
        return
    made = OldPostgres(request.getfixturevalue("postgres_url"))
    try:
        yield made
    finally:
        made.drop()


class Old:
    url: str
    table = "cron_jobs"

    def make(self, columns: str = LONG, names: tuple[str, ...] = NAMES, rows: list[tuple[Any, ...]] = ROWS) -> None:
        raise NotImplementedError

    def rows(self) -> list[tuple[Any, ...]]:
        raise NotImplementedError


class OldSqlite(Old):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def make(self, columns: str = LONG, names: tuple[str, ...] = NAMES, rows: list[tuple[Any, ...]] = ROWS) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(f"CREATE TABLE cron_jobs ({columns.format(json='TEXT', flag='INTEGER')})")
            marks = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO cron_jobs ({', '.join(names)}) VALUES ({marks})", rows)

    def rows(self) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return connection.execute("SELECT * FROM cron_jobs").fetchall()


class OldPostgres(Old):
    def __init__(self, url: str) -> None:
        self.url = url
        self._schema = f"old_{uuid.uuid4().hex}"
        self.table = f"{self._schema}.cron_jobs"

    def _do(self, work: Callable[[asyncpg.Connection], Any]) -> Any:
        async def body() -> Any:
            connection = await asyncpg.connect(self.url)
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(body())

    def make(self, columns: str = LONG, names: tuple[str, ...] = NAMES, rows: list[tuple[Any, ...]] = ROWS) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute(f"CREATE SCHEMA {self._schema}")
            await connection.execute(f"CREATE TABLE {self.table} ({columns.format(json='JSONB', flag='BOOLEAN')})")
            marks = ", ".join(f"${number}" for number in range(1, len(names) + 1))
            await connection.executemany(f"INSERT INTO {self.table} ({', '.join(names)}) VALUES ({marks})", rows)

        self._do(work)

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._do(lambda connection: connection.fetch(f"SELECT * FROM {self.table}"))]

    def drop(self) -> None:
        self._do(lambda connection: connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE"))


def imported(shop: Shop, old: Old, *words: str, code: int) -> dict[str, Any]:
    result = shop.run("cron", "import", old.url, "--table", old.table, *words, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in found["rows"]}


NOT = "does_not_map"
WHY = {
    "six": "has six fields",
    "wrong": "61",
    "stranger": "old_send",
    "misfit": "send",
    "list": "JSON object",
    "hasty": "timeout",
}


def test_a_dry_run_shows_the_outcome_of_each_row_and_writes_nothing(shop: Shop, old: Old) -> None:
    old.make()
    before = old.rows()
    found = imported(shop, old, code=1)
    assert not found["applied"]
    assert outcomes(found) == {"nightly": "new", "paused": "new"} | dict.fromkeys(WHY, NOT)
    assert {row["name"] for row in found["rows"] if row["why"] and WHY[row["name"]] in row["why"]} == set(WHY)
    assert found["columns"] == {COLUMNS[word][0]: word for word in COLUMNS}
    assert found["left_out"] == ["description"]
    assert not (shop.folder / "shop.db").exists()
    assert old.rows() == before


def test_apply_adds_each_row_once(shop: Shop, old: Old) -> None:
    old.make()
    handler = ("--handler", "old_send=send")
    found = imported(shop, old, "--apply", *handler, code=1)
    assert outcomes(found) == {"nightly": "added", "paused": "added", "stranger": "added"} | {
        name: NOT for name in WHY if name != "stranger"
    }
    nightly, paused, stranger = shop.json("cron")["schedules"]
    assert (nightly["timezone"], nightly["overlap"], nightly["missed"]) == ("UTC", "allow", "skip")
    assert (nightly["max_retry"], nightly["timeout_seconds"], nightly["payload"]) == (5, 3600, {"to": "ann"})
    assert (paused["enabled"], paused["overlap"], paused["max_retry"], paused["timeout_seconds"]) == (
        False, "skip", 0, 300,
    )  # fmt: skip
    assert (stranger["kind"], stranger["queue"], stranger["origin"]) == ("send", "mail", "managed")
    again = imported(shop, old, "--apply", *handler, code=1)
    assert {name for name, outcome in outcomes(again).items() if outcome == "there_already"} == {
        "nightly", "paused", "stranger",
    }  # fmt: skip
    other = imported(shop, old, "--tz", "Asia/Seoul", *handler, code=1)
    assert outcomes(other)["nightly"] == NOT, "another schedule of that name is left alone"
    assert shop.json("cron", "show", "nightly")["schedule"]["timezone"] == "UTC"


def test_short_column_names(shop: Shop, old: Old) -> None:
    names = ("name", "expression", "handler", "params", "max_retry", "timeout_seconds", "is_enabled")
    old.make(SHORT, names, [("nightly", "0 2 * * *", "send", '{"to": "ann"}', None, None, None)])
    assert outcomes(imported(shop, old, "--tz", "Asia/Seoul", "--apply", code=0)) == {"nightly": "added"}
    made = shop.json("cron", "show", "nightly")["schedule"]
    assert (made["timezone"], made["max_retry"], made["timeout_seconds"], made["enabled"]) == (
        "Asia/Seoul", 3, 300, True,
    )  # fmt: skip


def test_rows_with_the_same_name_are_rejected(shop: Shop, old: Old) -> None:
    names = ("name", "expression", "handler", "params", "max_retry", "timeout_seconds", "is_enabled")
    row = ("0 2 * * *", "send", '{"to": "ann"}', None, None, None)
    old.make(SHORT, names, [("twice", *row), ("once", *row), ("twice", *row)])
    for words in ((), ("--apply",)):
        found = imported(shop, old, *words, code=1)
        assert [row["why"] for row in found["rows"]] == [None, "2 rows have this name", "2 rows have this name"]
    assert [each["name"] for each in shop.json("cron")["schedules"]] == ["once"]


def test_text_output(shop: Shop, old: Old) -> None:
    old.make()
    text = shop.run("cron", "import", old.url, "--table", old.table).output
    assert "cron_expression\texpression, in UTC" in text
    assert "description\tignored" in text
    assert "nightly\t0 2 * * *\tsend\tnew" in text
    assert "\nwrong: " in text
    assert "8 rows: 2 to add, 0 there already, 6 do not map.\n" in text
    assert "--apply" in text


def test_a_table_without_the_columns_is_rejected(shop: Shop, old: Old) -> None:
    old.make("id INTEGER, name TEXT", ("id", "name"), [(1, "a")])
    result = shop.run("cron", "import", old.url, "--table", old.table)
    assert result.exit_code == 1
    assert error_code(result) == "configuration"
    assert "cron_expression or expression; handler_name or handler" in result.output
    result = shop.run("cron", "import", old.url, "--table", "nothing_there")
    assert (result.exit_code, error_code(result)) == (1, "configuration")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///nowhere.db", "nowhere.db"),
        ("mysql://db/old", "mysql://db/old"),
        ("postgresql://user:hidden@127.0.0.1:1/old", "postgresql://127.0.0.1:1/old"),
    ],
)
def test_a_database_that_cannot_be_read(shop: Shop, url: str, shown: str) -> None:
    result = shop.run("cron", "import", url)
    assert (result.exit_code, error_code(result)) == (1, "configuration")
    assert shown in result.output
    assert "hidden" not in result.output
    assert error_code(shop.run("cron", "import", url, "--table", "a; DROP TABLE b")) == "bad_option"
