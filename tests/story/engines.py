"""An empty store for a story: a file, or a prefix or schema on a server that all tests share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests import fork_server
from tests.servers import shared
from tests.servers.absent import Absent
from tests.servers.fixtures import wanted
from tests.servers.schema import reused_schema
from tests.story.sizes import size

# Many processes share one server; each of them needs few connections.
CONNECTIONS = 4

on_every_store = pytest.mark.parametrize(
    "engine", size(("sqlite", "redis", "postgres"), ("sqlite", "redis", "postgres", "pgbouncer"))
)


def start_servers(engines: Iterable[str]) -> None:
    """Start what stories on these stores share.

    It blocks for seconds on a busy machine: done within one story, it would cut off the connections of those beside it.
    """
    urls = {"redis": shared.redis_url, "postgres": shared.postgres_url, "pgbouncer": shared.impatient_pgbouncer_url}
    for engine in engines:
        with suppress(Absent, KeyError):
            urls[engine]()
    fork_server.run("jobyard", ["--version"], environment=os.environ, folder=Path.cwd())


@contextmanager
def empty_store(engine: str, folder: Path, *, may_be_used: bool = False) -> Iterator[str]:
    """The URL of an empty store. `may_be_used`: with tables of earlier tests, for one whose processes all end in it."""
    name = f"{shared.RUN}_{secrets.token_hex(4)}"
    match engine:
        case "sqlite":
            yield f"sqlite:///{folder / 'jobs.db'}"
        case "redis":
            yield with_options(wanted(shared.redis_url), f"prefix={name}")
        case "postgres" if may_be_used:
            with reused_schema(wanted(shared.postgres_url)) as schema:
                yield with_options(wanted(shared.postgres_url), f"schema={schema}")
        case "postgres":
            yield with_options(wanted(shared.postgres_url), f"schema={name}")
        case "pgbouncer":
            yield with_options(wanted(shared.impatient_pgbouncer_url), f"schema={name}", "pooled=true")
        case _:
            raise ValueError(engine)


def with_options(url: str, *options: str) -> str:
    """
    >>> with_options("redis://h/0", "prefix=a")
    'redis://h/0?prefix=a&connections=4'
    """
    return f"{url}{'&' if '?' in url else '?'}{'&'.join([*options, f'connections={CONNECTIONS}'])}"
