"""SQL statements of the SQLite store, by name."""

from jobyard.stores._shared.named_sql import load

SQL = load(__name__)
