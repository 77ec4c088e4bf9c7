"""Makes a store from its URL. Client libraries are extras, so stores on servers are imported on use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qsl, unquote, urlsplit

from jobyard.config.settings import POSTGRES_PASSWORD, REDIS_PASSWORD
from jobyard.config.store_url import StoreUrl, integer, shown, split, yes_or_no
from jobyard.errors import ConfigurationError, UnknownStore, did_you_mean
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Store
from jobyard.stores.sharded import ShardedStore
from jobyard.stores.sqlite import SqliteStore

SCHEMES = ("sqlite", "redis", "rediss", "postgresql", "postgres", "memory")
SYNCHRONOUS = ("full", "normal", "off")
MAX_CONNECTIONS = 1000
REDIS_OPTIONS = ("connections", "prefix")
REDIS_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
POSTGRES_OPTIONS = ("connections", "pooled", "schema")
POSTGRES_CLIENT_OPTIONS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "passfile",
    "target_session_attrs",
    "application_name",
)
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
# No braces: they would decide in which slot of a cluster a key is, which the store does.
PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def make_store(url: str, clock: Clock | None = None) -> Store:
    """
    >>> make_store("sqlit:///jobs.db")
    Traceback (most recent call last):
      ...
    jobyard.errors.UnknownStore: The store URL sqlit:///jobs.db has an unknown scheme. Did you mean "sqlite"? ...
    >>> make_store("redis+unix:///run/redis.sock")
    Traceback (most recent call last):
      ...
    jobyard.errors.UnknownStore: The store URL redis+unix:///run/redis.sock names a Unix socket, which is not ...
    >>> make_store("memory://").url
    'memory://'
    """
    if not isinstance(url, str):
        raise UnknownStore(f"A store URL must be text such as sqlite:///jobs.db, not {url!r}.")
    parts = split(url)
    match parts.scheme:
        case "memory":
            from jobyard.stores.memory import MemoryStore  # noqa: PLC0415  # on use, as the others

            return MemoryStore(clock or SystemClock())
        case "sqlite":
            return _sqlite(url, clock)
        case "redis" | "rediss":
            return _redis(url, clock)
        case "postgresql" | "postgres":
            return _postgres(url, clock)
    fault = "has an unknown scheme" if "://" in url else "has no ://"
    hint = did_you_mean(parts.scheme or re.split("[:/]", url)[0], SCHEMES)
    if "unix" in parts.scheme:
        fault, hint = "names a Unix socket, which is not supported for Redis", " Use the host and port of the server."
    raise UnknownStore(
        f"The store URL {shown(url)} {fault}.{hint} Known: sqlite:///relative.db, "
        "sqlite:////absolute.db, redis://host:6379/0, postgresql://user@host/database, memory://."
    )


def _sqlite(url: str, clock: Clock | None) -> Store:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise UnknownStore(
            f"{shown(url)} does not name a file. "
            "Write sqlite:///jobs.db for a relative path, sqlite:////var/lib/jobs.db for an absolute one."
        )
    if path == ":memory:":
        raise UnknownStore("Cannot use sqlite:///:memory:: connections cannot share it. Use memory:// in tests.")
    if parts.fragment or any(ord(letter) < 32 for letter in path):
        raise UnknownStore(f"{url!r} contains a # or a control character. Write # in a file name as %23.")
    synchronous = "full"
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key != "synchronous":
            raise UnknownStore(f"{url}: unknown option {key}.{did_you_mean(key, ['synchronous'])} Known: synchronous.")
        if value not in SYNCHRONOUS:
            raise UnknownStore(f"{url}: synchronous must be one of {', '.join(SYNCHRONOUS)}, not {value!r}.")
        synchronous = value
    return SqliteStore(path, clock, synchronous)


def _redis(url: str, clock: Clock | None) -> Store:
    is_secure = url.startswith("rediss:")
    parsed = StoreUrl(url, REDIS_OPTIONS, REDIS_TLS_OPTIONS if is_secure else ())
    if not re.fullmatch(r"/?[0-9]*", parsed.parts.path):
        raise UnknownStore(f"{parsed.shown}: the path must be the number of a database, as in redis://host:6379/0.")
    connections = parsed.take("connections", 16, integer(1, MAX_CONNECTIONS), f"1 to {MAX_CONNECTIONS}")
    prefix = parsed.take("prefix", "jobyard", _matching(PREFIX), "letters, digits and _ . : - (at most 100)")
    with requires_extra("redis", parsed.shown):
        from jobyard.stores.redis import RedisStore  # noqa: PLC0415
    return RedisStore(parsed.url(REDIS_PASSWORD.variable), clock, connections=connections, prefix=prefix)


def _postgres(url: str, clock: Clock | None) -> Store:
    parsed = StoreUrl(url, POSTGRES_OPTIONS, POSTGRES_CLIENT_OPTIONS)
    connections = parsed.take("connections", 10, integer(1, MAX_CONNECTIONS), f"1 to {MAX_CONNECTIONS}")
    pooled = parsed.take("pooled", False, yes_or_no, "true or false")
    schema = parsed.take("schema", "", _matching(SCHEMA), "a-z, 0-9 and _ (at most 63)")
    if not parsed.parts.netloc and not parsed.parts.path.strip("/"):
        raise UnknownStore(
            f"{parsed.shown} names neither a host nor a database. Write postgresql://user@host/database; "
            "postgresql:///database connects as PGHOST says, or to the Unix socket of this machine."
        )
    if parsed.options.get("sslmode", "prefer") not in SSL_MODES:
        raise UnknownStore(f"{parsed.shown}: sslmode must be one of {', '.join(SSL_MODES)}.")
    with requires_extra("postgres", parsed.shown):
        from jobyard.stores.postgres import PostgresStore  # noqa: PLC0415
    given = parsed.url(POSTGRES_PASSWORD.variable, "postgresql")
    return PostgresStore(given, clock, connections=connections, pooled=pooled, schema=schema or None)


@contextmanager
def requires_extra(name: str, shown: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobyard"):
            raise
        raise ConfigurationError(
            f"Cannot use the store {shown}: the Python package {error.name} is not installed. "
            f"Run: pip install 'jobyard[{name}]'"
        ) from error


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(text)
        return text

    return read


def make_sharded_store(default: Store, urls: Mapping[str, str], url: str | None = None) -> Store:
    """A store that keeps some queues in other stores, by URL, and the rest in `default`, whose URL is `url`.

    A URL that several queues name makes one store: two would list its jobs twice.
    """
    made = {} if url is None else {url: default}
    for queue, each in urls.items():
        if each not in made:
            try:
                made[each] = make_store(each)
            except UnknownStore as error:
                raise UnknownStore(f"Invalid store of queue {queue} (store.queues): {error}") from error
    return ShardedStore(default, {queue: made[each] for queue, each in urls.items()})
