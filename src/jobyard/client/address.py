"""The URL and the token of a client, validated before the first request; the token is never shown."""

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

from jobyard.errors import ConfigurationError
from jobyard.operations.secrets import secret

TOKEN = "JOBYARD_TOKEN"  # noqa: S105  # the variable's name


def checked_url(url: str) -> str:
    """
    >>> checked_url("http://localhost:8080/")
    'http://localhost:8080'
    >>> checked_url("jobs.example.org")
    Traceback (most recent call last):
      ...
    jobyard.errors.ConfigurationError: Invalid server URL 'jobs.example.org'. Use http://host:port or https://host.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError("Invalid server URL. Use http://host:port or https://host.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(f"The server URL must not contain a user or password. Set {TOKEN} instead.")
    if parts.query or parts.fragment:
        raise ConfigurationError("The server URL must not contain ? or #.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"Invalid server URL {url!r}. Use http://host:port or https://host.")
    return url.rstrip("/")


def found_token(given: str | None) -> str | None:
    token = (secret(TOKEN, os.environ) if given is None else given).strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"The token contains invalid characters. Check {TOKEN}.")
    return token or None


def path(*parts: str) -> str:
    """
    >>> path("v1", "queues", "a/b c", "pause")
    '/v1/queues/a%2Fb%20c/pause'
    """
    return "".join("/" + quote(part, safe="") for part in parts)
