"""The very rows that jobyard wrote, written again by bare SQLite into the same tables: the floor of a bulk insert."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome
from bench.yard.workload import LIMITED, fill

Table = tuple[str, list[tuple[object, ...]]]


def read_tables(path: Path) -> tuple[list[str], list[Table]]:
    """The schema, and for each table its INSERT and its rows.

    Triggers stay behind, for the rows already hold what they did.
    """
    connection = sqlite3.connect(path)
    objects = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type DESC"
    ).fetchall()
    tables: list[Table] = []
    for kind, name, _ in objects:
        if kind != "table":
            continue
        columns = [f'"{row[1]}"' for row in connection.execute(f'PRAGMA table_xinfo("{name}")') if row[6] == 0]
        rows = connection.execute(f'SELECT {", ".join(columns)} FROM "{name}"').fetchall()
        marks = ", ".join("?" * len(columns))
        tables.append((f'INSERT INTO "{name}" ({", ".join(columns)}) VALUES ({marks})', rows))
    connection.close()
    return [sql for _, _, sql in objects], tables


def write_tables(path: Path, schema: list[str], tables: list[Table]) -> float:
    """Seconds for one power-safe transaction that holds all rows."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    # As jobyard sets them: a smaller cache would spill, and flatter jobyard.
    connection.execute("PRAGMA cache_size=-16384")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    for statement in schema:
        connection.execute(statement)
    started = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    for insert, rows in tables:
        connection.executemany(insert, rows)
    connection.execute("COMMIT")
    elapsed = time.perf_counter() - started
    connection.close()
    return elapsed


def _insert(order: Order) -> Outcome:
    source = order.folder / "jobyard.db"
    fill(f"sqlite:///{source}", LIMITED, order.jobs)
    schema, tables = read_tables(source)
    elapsed = write_tables(order.folder / "raw.db", schema, tables)
    return Outcome({"jobs_per_second": order.jobs / elapsed, "rows": float(sum(len(rows) for _, rows in tables))})


CONTENDER = Contender(
    name="raw-sqlite",
    version=sqlite3.sqlite_version,
    cases=(
        Case(
            name="insert",
            benchmark=Benchmark.INSERT,
            title="raw SQLite, the same rows, one transaction",
            durability=Durability.POWER_SAFE,
            guarantee="rows only",
            measure=_insert,
        ),
    ),
)
