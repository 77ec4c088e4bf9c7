"""Redis store: many machines share one server, and each change is one Lua command on it."""

from jobyard.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
