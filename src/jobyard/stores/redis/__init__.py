"""The Redis store: many machines, one server; every change is one Lua command on it."""

from jobyard.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
