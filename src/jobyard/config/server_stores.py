"""Stores on servers: imported when asked for, because their client libraries are extras."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobyard.config.settings import POSTGRES_PASSWORD, REDIS_PASSWORD
from jobyard.config.store_url import Address, whole_number, yes_or_no
from jobyard.errors import ConfigurationError, UnknownStore
from jobyard.ports.clock import Clock
from jobyard.ports.store import Store

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
# A brace would decide where a cluster keeps the key, which is the store's business.
PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def redis_store(url: str, clock: Clock | None) -> Store:
    is_secure = url.startswith("rediss:")
    address = Address(url, REDIS_OPTIONS, REDIS_TLS_OPTIONS if is_secure else ())
    if not re.fullmatch(r"/?[0-9]*", address.parts.path):
        raise UnknownStore(
            f"{address.shown}: after the host comes the number of a database, as in redis://host:6379/0."
        )
    connections = address.take("connections", 16, whole_number(1, MAX_CONNECTIONS), f"1 to {MAX_CONNECTIONS}")
    prefix = address.take("prefix", "jobyard", _matching(PREFIX), "letters, digits and _ . : - (at most 100)")
    with extra("redis", address.shown):
        from jobyard.stores.redis import RedisStore  # noqa: PLC0415
    return RedisStore(address.url(REDIS_PASSWORD.variable), clock, connections=connections, prefix=prefix)


def postgres_store(url: str, clock: Clock | None) -> Store:
    address = Address(url, POSTGRES_OPTIONS, POSTGRES_CLIENT_OPTIONS)
    connections = address.take("connections", 10, whole_number(1, MAX_CONNECTIONS), f"1 to {MAX_CONNECTIONS}")
    pooled = address.take("pooled", False, yes_or_no, "true or false")
    schema = address.take("schema", "", _matching(SCHEMA), "a-z, 0-9 and _ (at most 63)")
    if address.options.get("sslmode", "prefer") not in SSL_MODES:
        raise UnknownStore(f"{address.shown}: sslmode is one of {', '.join(SSL_MODES)}.")
    with extra("postgres", address.shown):
        from jobyard.stores.postgres import PostgresStore  # noqa: PLC0415
    given = address.url(POSTGRES_PASSWORD.variable, "postgresql")
    return PostgresStore(given, clock, connections=connections, pooled=pooled, schema=schema or None)


@contextmanager
def extra(name: str, shown: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobyard"):
            raise
        raise ConfigurationError(
            f"The store {shown} needs the Python package {error.name}, which is not installed. "
            f"Install it with: pip install 'jobyard[{name}]'"
        ) from error


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(text)
        return text

    return read
