"""Queues on stores of their own."""

from jobyard.stores.spread.store import SpreadStore

__all__ = ["SpreadStore"]
