"""The servers that a whole test run shares, each started when it is first asked for."""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable

from tests.servers.pgbouncer import VANISHED_SECONDS, PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server
from tests.servers.redis import RedisServer

REDIS_VARIABLE = "JOBYARD_TEST_REDIS_URL"
POSTGRES_VARIABLE = "JOBYARD_TEST_POSTGRES_URL"
PGBOUNCER_VARIABLE = "JOBYARD_TEST_PGBOUNCER_URL"
# Prefix of everything that tests create on a shared server.
RUN = f"jobyard_test_{secrets.token_hex(4)}"

missing: dict[str, str] = {}  # programs that were asked for in vain, and what to do
_started: list[Server] = []


@functools.cache
def redis_url() -> str:
    return os.environ.get(REDIS_VARIABLE) or _start(RedisServer)


@functools.cache
def postgres_url() -> str:
    return os.environ.get(POSTGRES_VARIABLE) or _start(PostgresServer)


@functools.cache
def pgbouncer_url() -> str:
    """For clients that no test freezes: on a busy machine one may be silent for seconds in the middle of a transaction,
    and a verb must not fail for it."""
    given = os.environ.get(PGBOUNCER_VARIABLE)
    return given or _start(lambda: PgBouncer(postgres_url()))


@functools.cache
def impatient_pgbouncer_url() -> str:
    """For stories, which freeze processes."""
    given = os.environ.get(PGBOUNCER_VARIABLE)
    return given or _start(lambda: PgBouncer(postgres_url(), idle_transaction_seconds=VANISHED_SECONDS))


@functools.cache
def warm_sessions_url() -> str:
    """Sessions that later connections use again, one at a time: they have planned most statements already."""
    return _start(lambda: PgBouncer(postgres_url(), sessions=200, mode="session"))


def stop_all() -> None:
    while _started:
        _started.pop().close()


def _start(make: Callable[[], Server]) -> str:
    server = make()
    _started.append(server)
    server.start()
    return server.url
