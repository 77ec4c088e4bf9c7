"""Memory store: the readable reference implementation of the port. Nothing is kept on disk."""

from jobyard.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
