"""PostgreSQL store: many machines share one server, where admission is decided in one trip per exchange."""

from jobyard.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
