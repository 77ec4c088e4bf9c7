"""Server address and credentials, parsed from the store URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import RedisSSLContext, SSLConnection, parse_url

from jobyard.errors import ConfigurationError, UnknownStore

TLS_OPTIONS = {
    "ssl_keyfile": "keyfile",
    "ssl_certfile": "certfile",
    "ssl_cert_reqs": "cert_reqs",
    "ssl_ca_certs": "ca_certs",
    "ssl_ca_path": "ca_path",
    "ssl_check_hostname": "check_hostname",
}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    url: str  # without credentials and options
    host: str
    port: int
    database: int
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None


def parse_address(url: str) -> RedisAddress:
    """
    >>> address = parse_address("redis://user:secret@example.org:7000/3")
    >>> (address.url, address.port, address.database, address.password)
    ('redis://example.org:7000/3', 7000, 3, 'secret')
    >>> parse_address("redis:///3")
    Traceback (most recent call last):
      ...
    jobyard.errors.UnknownStore: redis:///3 is not a Redis URL with a host. Use redis://host:6379/0.
    """
    redacted = without_credentials(url)
    try:
        options: dict[str, Any] = dict(parse_url(url))
        if "host" not in options:
            raise ValueError("no host")
        database = int(options.get("db", 0))
    except (ValueError, TypeError):
        raise UnknownStore(f"{redacted} is not a Redis URL with a host. Use redis://host:6379/0.") from None
    return RedisAddress(
        url=redacted,
        host=options["host"],
        port=int(options.get("port", 6379)),
        database=database,
        username=options.get("username"),
        password=options.get("password"),
        tls=_tls_context(options) if options.get("connection_class") is SSLConnection else None,
    )


def without_credentials(url: str) -> str:
    """
    >>> without_credentials("rediss://:secret@host/0?ssl_cert_reqs=none")
    'rediss://host/0'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext:
    given = {name: options[option] for option, name in TLS_OPTIONS.items() if option in options}
    given.setdefault("cert_reqs", "required")
    given.setdefault("check_hostname", given["cert_reqs"] not in ("none", ssl.CERT_NONE))
    try:
        context: ssl.SSLContext = RedisSSLContext(**given).get()
    except OSError as error:
        files = ", ".join(str(options[name]) for name in TLS_OPTIONS if isinstance(options.get(name), str))
        raise ConfigurationError(f"Cannot load the TLS files ({files}): {error.strerror or error}.") from error
    return context
