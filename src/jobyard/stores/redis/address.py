"""Where the server is and how it is entered, from a URL."""

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
class Address:
    shown: str  # without secrets
    host: str
    port: int
    path: str | None  # a Unix socket instead of host and port
    database: int
    username: str | None
    password: str | None
    tls: ssl.SSLContext | None


def read(url: str) -> Address:
    """
    >>> address = read("redis://user:secret@example.org:7000/3")
    >>> (address.shown, address.port, address.database, address.password)
    ('redis://example.org:7000/3', 7000, 3, 'secret')
    """
    shown = without_secrets(url)
    try:
        options: dict[str, Any] = dict(parse_url(url))
        database = int(options.get("db", 0))
    except (ValueError, TypeError):
        raise UnknownStore(f"{shown} is not a Redis URL. Write it like redis://host:6379/0.") from None
    return Address(
        shown=shown,
        host=options.get("host", "localhost"),
        port=int(options.get("port", 6379)),
        path=options.get("path"),
        database=database,
        username=options.get("username"),
        password=options.get("password"),
        tls=_tls(options) if options.get("connection_class") is SSLConnection else None,
    )


def without_secrets(url: str) -> str:
    """
    >>> without_secrets("rediss://:secret@host/0?ssl_cert_reqs=none")
    'rediss://host/0'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _tls(options: dict[str, Any]) -> ssl.SSLContext:
    given = {ours: options[theirs] for theirs, ours in TLS_OPTIONS.items() if theirs in options}
    given.setdefault("cert_reqs", "required")
    given.setdefault("check_hostname", given["cert_reqs"] not in ("none", ssl.CERT_NONE))
    try:
        context: ssl.SSLContext = RedisSSLContext(**given).get()
    except OSError as error:
        files = ", ".join(str(options[name]) for name in TLS_OPTIONS if isinstance(options.get(name), str))
        raise ConfigurationError(f"The TLS files ({files}) cannot be used: {error.strerror or error}.") from error
    return context
