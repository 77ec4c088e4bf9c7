"""Sharded store: some queues have stores of their own."""

from jobyard.stores.sharded.store import ShardedStore

__all__ = ["ShardedStore"]
