"""SQLite store: one file, many processes, no server."""

from jobyard.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
