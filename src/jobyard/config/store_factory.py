"""A store from its URL."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from jobyard.config.server_stores import postgres_store, redis_store
from jobyard.config.store_url import shown, split
from jobyard.errors import UnknownStore, did_you_mean
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.stores.sharded import ShardedStore
from jobyard.stores.sqlite import SqliteStore

SCHEMES = ("sqlite", "redis", "rediss", "postgresql", "postgres", "memory")
SYNCHRONOUS = ("full", "normal", "off")


def make_store(url: str, clock: Clock | None = None) -> Store:
    """
    >>> make_store("sqlit:///jobs.db")
    Traceback (most recent call last):
      ...
    jobyard.errors.UnknownStore: The store URL sqlit:///jobs.db has an unknown scheme. Did you mean "sqlite"? ...
    >>> make_store("memory://").url
    'memory://'
    """
    if not isinstance(url, str):
        raise UnknownStore(f"A store is named by a URL such as sqlite:///jobs.db, not by {url!r}.")
    parts = split(url)
    match parts.scheme:
        case "memory":
            return MemoryStore(clock or SystemClock())
        case "sqlite":
            return _sqlite(url, clock)
        case "redis" | "rediss":
            return redis_store(url, clock)
        case "postgresql" | "postgres":
            return postgres_store(url, clock)
    hint = did_you_mean(parts.scheme or url.partition(":")[0], SCHEMES)
    raise UnknownStore(
        f"The store URL {shown(url)} has an unknown scheme.{hint} Known: sqlite:///relative.db, "
        "sqlite:////absolute.db, redis://host:6379/0, postgresql://user@host/database, memory://."
    )


def _sqlite(url: str, clock: Clock | None) -> Store:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise UnknownStore(
            f"{shown(url)} names no file. "
            "Write sqlite:///jobs.db for a file here, sqlite:////var/lib/jobs.db for a full path."
        )
    if path == ":memory:":
        raise UnknownStore("sqlite:///:memory: cannot be shared; use memory:// in tests.")
    if parts.fragment or any(ord(letter) < 32 for letter in path):
        raise UnknownStore(f"{url!r} has a # or a control character; write # in a file name as %23.")
    synchronous = "full"
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key != "synchronous":
            raise UnknownStore(f"{url}: there is no option {key}.{did_you_mean(key, ['synchronous'])}")
        if value not in SYNCHRONOUS:
            raise UnknownStore(f"{url}: synchronous is {', '.join(SYNCHRONOUS)}, not {value!r}.")
        synchronous = value
    return SqliteStore(path, clock, synchronous)


def make_sharded_store(default: Store, urls: Mapping[str, str], url: str | None = None) -> Store:
    """Some queues on stores of their own, the others on the default one, whose URL may be known too.

    A store that is named for several queues is made once: two handles would show its jobs twice.
    """
    made = {} if url is None else {url: default}
    for queue, each in urls.items():
        if each not in made:
            try:
                made[each] = make_store(each)
            except UnknownStore as error:
                raise UnknownStore(f"The store of queue {queue} (store.queues): {error}") from error
    return ShardedStore(default, {queue: made[each] for queue, each in urls.items()})
