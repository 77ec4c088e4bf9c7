"""The products that are known, and the results of the workflows, in SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

PATH = "SCANNER_DATABASE"
# Each table has a key that makes writing safe to repeat: a step that was interrupted runs again.
SCHEMA = """
CREATE TABLE IF NOT EXISTS products (
  url TEXT PRIMARY KEY, site TEXT NOT NULL, barcode TEXT NOT NULL, name TEXT NOT NULL,
  price INTEGER NOT NULL, in_stock INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS results (
  run_id TEXT NOT NULL, url TEXT NOT NULL, verdict TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (run_id, url));
CREATE TABLE IF NOT EXISTS listed_urls (url TEXT PRIMARY KEY, site TEXT NOT NULL, run_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS best_offers (barcode TEXT PRIMARY KEY, url TEXT NOT NULL, price INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS reports (run_id TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (run_id TEXT PRIMARY KEY, step TEXT NOT NULL, error TEXT NOT NULL);
"""
STORED = "SELECT url, price, in_stock FROM products WHERE url IN (SELECT value FROM json_each(?))"
SAVE_PRODUCT = "INSERT OR REPLACE INTO products VALUES (:url, :site, :barcode, :name, :price, :in_stock)"
FORGET_PRODUCT = "DELETE FROM products WHERE url = :url"
SAVE_RESULT = "INSERT OR REPLACE INTO results VALUES (:run_id, :url, :verdict, :detail)"
SAVE_URL = "INSERT OR REPLACE INTO listed_urls VALUES (:url, :site, :run_id)"
SAVE_OFFER = "INSERT OR REPLACE INTO best_offers VALUES (:barcode, :url, :price)"
SAVE_REPORT = "INSERT OR REPLACE INTO reports VALUES (:run_id, :text)"
SAVE_FAILURE = "INSERT OR REPLACE INTO failures VALUES (:run_id, :step, :error)"
VERDICTS = "SELECT verdict, count(*) FROM results GROUP BY verdict ORDER BY count(*) DESC, verdict"


@contextmanager
def transaction(path: str | None = None) -> Iterator[sqlite3.Connection]:
    """Commits all of it, or nothing if the block raises."""
    connection = sqlite3.connect(path or os.environ[PATH], timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection
    finally:
        connection.close()


def create(path: str, products: Iterable[dict[str, Any]]) -> None:
    """Make the tables, with what is known before the first scan."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA)
    connection.close()
    with transaction(path) as connection:
        connection.executemany(SAVE_PRODUCT, products)
