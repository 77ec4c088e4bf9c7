"""A server of its own for each story, so that it can be broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers import Absent, PgBouncer, PostgresServer, Proxy, RedisServer, Server
from tests.servers.fixtures import absent
from tests.servers.pgbouncer import VANISHED_SECONDS
from tests.story.engines import with_options
from tests.story.sizes import SOAK, size


@pytest.fixture(params=size(["redis", "postgres"], ["redis", "postgres", "pgbouncer"]))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(engine: str) -> Iterator[Server]:
    try:
        made: Server = RedisServer(on_disk=SOAK) if engine == "redis" else PostgresServer(on_disk=SOAK)
    except Absent as error:
        absent(error)
    with made:
        yield made


@pytest.fixture
def endpoint(engine: str, server: Server) -> Iterator[Server]:
    """What clients talk to: the server itself, or the PgBouncer in front of it."""
    if engine != "pgbouncer":
        yield server
        return
    try:
        made = PgBouncer(server.url, idle_transaction_seconds=VANISHED_SECONDS)
    except Absent as error:
        absent(error)
    with made:
        yield made
        assert made.is_up, f"PgBouncer has ended by itself:\n{made.log_tail()}"


@pytest.fixture
def url(engine: str, endpoint: Server) -> str:
    return with_options(endpoint.url, *(["pooled=true"] if engine == "pgbouncer" else []))


@pytest.fixture
def proxy(endpoint: Server) -> Iterator[Proxy]:
    with Proxy(endpoint.port) as proxy:
        yield proxy


@pytest.fixture
def through(request: pytest.FixtureRequest, url: str) -> str:
    """By the proxy, for a story that asks for one."""
    if "proxy" not in request.fixturenames:
        return ""
    proxy: Proxy = request.getfixturevalue("proxy")
    return proxy.through(url)
