"""Addresses of webhooks: which URLs a server may be made to call.

The caller of the API chooses the URL, and the request comes from inside the operator's network. So every address that a
name resolves to is checked, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Control characters and spaces would split the request line or its headers.
_PLAIN = re.compile(r"[\x21-\x7e]+")
# Networks that translate to IPv4 addresses: what is behind them cannot be told from the address alone.
_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))


class ForbiddenAddress(Exception):
    """The URL is invalid, or leads to an address that webhooks must not reach."""


class Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str  # with the query
    authority: str  # for the Host header


def parse(url: str) -> Target:
    """Raises ForbiddenAddress.

    >>> parse("https://example.com/a?b=1")
    Target(scheme='https', host='example.com', port=443, path='/a?b=1', authority='example.com')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ForbiddenAddress("Must be an http or https URL.") from None
    if not _PLAIN.fullmatch(url) or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ForbiddenAddress("Must be an http or https URL.")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddress("Must not contain a user name or password.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.hostname
    name = f"[{host}]" if ":" in host else host
    authority = name if port is None else f"{name}:{port}"
    return Target(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], path, authority)


def is_public(address: str) -> bool:
    """Whether an address belongs to the public Internet.

    >>> [is_public(each) for each in ("1.1.1.1", "127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::7f00:1")]
    [True, False, False, False, False]
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _TRANSLATED):
            return False
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return found.is_global and not found.is_multicast and not found.is_reserved


def check_url(url: str, *, allow_private: bool) -> Target:
    """Reject what can be rejected without looking up a name. Raises ForbiddenAddress."""
    target = parse(url)
    host = target.host.rstrip(".")
    literal = host if ":" in host else _as_ipv4(host)
    is_local = host == "localhost" or host.endswith(".localhost")
    if not allow_private and (is_local or (literal is not None and not is_public(literal))):
        raise ForbiddenAddress(_private(target.host))
    return target


def _as_ipv4(host: str) -> str | None:
    """The address, if the host is one in any of the forms that resolvers understand: hexadecimal, octal, one number.

    >>> _as_ipv4("0x7f.1"), _as_ipv4("2130706433"), _as_ipv4("0300.0250.1"), _as_ipv4("example.com")
    ('127.0.0.1', '127.0.0.1', '192.168.0.1', None)
    """
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        # Digits that are not an address, such as 1.2.3.4.5: a resolver may still understand them.
        return host if host.replace(".", "").isdigit() else None


async def resolve(target: Target, *, allow_private: bool) -> list[str]:
    """The addresses of the host, all of which may be called. Raises ForbiddenAddress, OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not allow_private and not all(map(is_public, addresses)):
        raise ForbiddenAddress(_private(target.host))
    return addresses


def _private(host: str) -> str:
    return f"{host} is not a public address. The operator can allow private ones with sandbox.webhooks_to_private."
