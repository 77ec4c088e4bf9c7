"""Store URL without secrets."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

SECRETS = ("password", "sslpassword")


def without_secrets(url: str) -> str:
    """
    >>> without_secrets("postgresql://me:secret@host:5432/jobs?password=secret&sslmode=require")
    'postgresql://me@host:5432/jobs?sslmode=require'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key not in SECRETS])
    shown = urlunsplit(("", "", parts.path, query, ""))
    return f"{parts.scheme}://{name}{at}{host}{shown}"
