"""Queues on stores of their own."""

from jobyard.stores.sharded.store import SpreadStore

__all__ = ["SpreadStore"]
