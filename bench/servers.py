"""The servers of a run: private, on a disk, as they come; an empty database for every measurement."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import redis
from tests.servers import PostgresServer, RedisServer

from bench.contender import Engine
from bench.yard.sandbox import best_tier


def _redis() -> RedisServer:
    # A rewrite of the append-only file would fall into some measurements and not into others.
    return RedisServer(on_disk=True, auto_aof_rewrite_percentage="0")


def _postgres() -> PostgresServer:
    """As it comes: what the tests change for their own ends is put back."""
    return PostgresServer(
        on_disk=True,
        dynamic_shared_memory_type="posix",
        shared_buffers="128MB",
        max_wal_size="1GB",
        max_connections="100",
    )


class Servers:
    """PostgreSQL runs for the whole time and gives each measurement a database; a Redis is new each time."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._numbers = itertools.count(1)
        self._postgres: PostgresServer | None = None

    def start(self, engine: Engine) -> str:
        """The server's version; raises when it is not to be had here."""
        if engine is Engine.SQLITE:
            return ""
        if engine is Engine.SANDBOX:
            return asyncio.run(best_tier())
        if engine is Engine.POSTGRES:
            self._postgres = self._stack.enter_context(_postgres())
            version = asyncio.run(_ask(self._postgres.url, "SHOW server_version"))
            return str(version).split()[0]
        with _redis() as server, redis.Redis.from_url(server.url) as client:
            return str(client.info("server")["redis_version"])

    @contextmanager
    def database(self, engine: Engine) -> Iterator[str]:
        if engine in {Engine.SQLITE, Engine.SANDBOX}:
            yield ""
        elif engine is Engine.REDIS:
            with _redis() as server:
                yield server.url
        else:
            assert self._postgres is not None
            name = f"bench_{next(self._numbers)}"
            asyncio.run(_ask(self._postgres.url, f"CREATE DATABASE {name}"))
            try:
                yield urlunsplit(urlsplit(self._postgres.url)._replace(path=f"/{name}"))
            finally:
                asyncio.run(_ask(self._postgres.url, f"DROP DATABASE {name} WITH (FORCE)", "CHECKPOINT"))


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def settle(url: str, *, analyze: bool = True) -> None:
    """The fixed point between filling and draining: work left by the filling is not part of the measured time."""
    if url.startswith("redis"):
        _sync_append_only_file(url)
    elif analyze:
        asyncio.run(_ask(url, "ANALYZE", "CHECKPOINT"))
    else:
        asyncio.run(_ask(url, "CHECKPOINT"))


def analyze(url: str) -> None:
    asyncio.run(_ask(url, "ANALYZE"))


async def _ask(url: str, *statements: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        answers = [await connection.fetchval(statement) for statement in statements]
    finally:
        await connection.close()
    return answers[-1]


def _sync_append_only_file(url: str) -> None:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        found = client.config_get("dir", "appenddirname")
    for path in (Path(found["dir"]) / found["appenddirname"]).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
