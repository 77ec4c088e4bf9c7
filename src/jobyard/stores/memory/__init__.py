"""The readable reference store: every rule of the port in plain Python, nothing kept on disk."""

from jobyard.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
