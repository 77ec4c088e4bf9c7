"""PostgreSQL: many machines share one server; the rule is performed there, in one trip per exchange."""

from jobyard.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
