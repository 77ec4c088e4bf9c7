"""An empty store for a story: a file, or a prefix or schema on a server that all tests share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers import shared
from tests.servers.fixtures import wanted
from tests.story.sizes import size

# Many processes share one server; each of them needs few connections.
CONNECTIONS = 4

on_every_store = pytest.mark.parametrize(
    "engine", size(("sqlite", "redis", "postgres"), ("sqlite", "redis", "postgres", "pgbouncer"))
)


@contextmanager
def empty_store(engine: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store."""
    name = f"{shared.RUN}_{secrets.token_hex(4)}"
    match engine:
        case "sqlite":
            yield f"sqlite:///{folder / 'jobs.db'}"
        case "redis":
            yield with_options(wanted(shared.redis_url), f"prefix={name}")
        case "postgres":
            yield with_options(wanted(shared.postgres_url), f"schema={name}")
        case "pgbouncer":
            yield with_options(wanted(shared.pgbouncer_url), f"schema={name}", "pooled=true")
        case _:
            raise ValueError(engine)


def with_options(url: str, *options: str) -> str:
    """
    >>> with_options("redis://h/0", "prefix=a")
    'redis://h/0?prefix=a&connections=4'
    """
    return f"{url}{'&' if '?' in url else '?'}{'&'.join([*options, f'connections={CONNECTIONS}'])}"
