"""A store from its URL."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from jobyard.errors import UnknownStore, did_you_mean
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.stores.sqlite import SqliteStore

SCHEMES = ("sqlite", "memory")
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
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryStore(clock or SystemClock())
    if parts.scheme == "sqlite":
        return _sqlite(url, clock)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    hint = did_you_mean(parts.scheme or url.partition(":")[0], SCHEMES)
    raise UnknownStore(
        f"The store URL {shown} has an unknown scheme.{hint} "
        "Known: sqlite:///relative.db, sqlite:////absolute.db, memory://."
    )


def _sqlite(url: str, clock: Clock | None) -> Store:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise UnknownStore(
            f"{url} names no file. Write sqlite:///jobs.db for a file here, sqlite:////var/lib/jobs.db for a full path."
        )
    if path == ":memory:":
        raise UnknownStore("sqlite:///:memory: cannot be shared; use memory:// in tests.")
    synchronous = "full"
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key != "synchronous":
            raise UnknownStore(f"{url}: there is no option {key}.{did_you_mean(key, ['synchronous'])}")
        if value not in SYNCHRONOUS:
            raise UnknownStore(f"{url}: synchronous is {', '.join(SYNCHRONOUS)}, not {value!r}.")
        synchronous = value
    return SqliteStore(path, clock, synchronous)
