"""Commands on Redis and PostgreSQL: empty, working, down, and over TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.support import Shop, error_code, shop
from tests.servers import Certificate, PostgresServer, RedisServer, Server
from tests.servers.absent import Absent
from tests.servers.fixtures import absent
from tests.story.engines import empty_store

__all__ = ["shop"]

PASSWORD = "hunter2"


@pytest.fixture(params=["redis", "postgres", "pgbouncer"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with empty_store(request.param, tmp_path) as url:
        yield url


def findings(shop: Shop, url: str, code: int) -> list[dict[str, Any]]:
    result = shop.run("--store", url, "doctor", "--json")
    assert result.exit_code == code, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


def test_queries_do_not_create_a_store(shop: Shop, url: str) -> None:
    for words in (["queues"], ["jobs", "list"], ["doctor"], ["top", "--once"]):
        result = shop.run("--store", url, *words)
        assert result.exit_code == 1, result.output
        assert error_code(result) == "configuration" or "jobyard migrate" in result.output
    plan = json.loads(shop.run("--store", url, "migrate", "--plan", "--json").stdout)
    assert not any(migration["applied"] for migration in plan["migrations"])


def test_enqueue_work_and_query(shop: Shop, url: str) -> None:
    for words in (
        ["enqueue", "send", '{"to": "a"}'],
        ["enqueue", "fail"],
        ["worker", "--until-empty", "--concurrency", "4"],
        ["check"],
    ):
        result = shop.run("--store", url, *words)
        assert result.exit_code == 0, result.output
    [queue] = json.loads(shop.run("--store", url, "queues", "--json").stdout)["queues"]
    assert (queue["name"], queue["completed"], queue["failed"]) == ("mail", 1, 1)
    levels = {finding["what"]: finding["level"] for finding in findings(shop, url, 0)}
    assert (levels["audit"], levels["dead letters"], levels["workers"]) == ("ok", "warn", "warn")
    assert "fail" not in levels.values()


def test_migrate_applies_once(shop: Shop, url: str) -> None:
    first = json.loads(shop.run("--store", url, "migrate", "--json").stdout)
    again = json.loads(shop.run("--store", url, "migrate", "--json").stdout)
    assert [one["number"] for one in first["migrations"]] == [one["number"] for one in again["migrations"]]
    assert all(one["applied"] for one in again["migrations"])
    assert not any(one["applied_now"] for one in again["migrations"])
    assert all(one["applied_now"] for one in first["migrations"])
    assert "is up to date" in shop.run("--store", url, "migrate").stdout


@pytest.mark.parametrize("make", [RedisServer, PostgresServer])
def test_an_unreachable_server_is_reported_in_one_line(
    shop: Shop, make: type[RedisServer] | type[PostgresServer], redis_url: str, postgres_url: str
) -> None:
    with make(password=PASSWORD) as server:
        url = server.url
    [finding] = findings(shop, url, 1)
    assert (finding["what"], finding["level"]) == ("store", "fail")
    assert str(server.port) in finding["says"]
    for words in (["queues"], ["enqueue", "send", '{"to": "a"}'], ["migrate"], ["check"]):
        result = shop.run("--store", url, *words)
        assert result.exit_code == 1, (words, result.output)
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert PASSWORD not in result.output + result.stderr


@pytest.mark.parametrize("make", [RedisServer, PostgresServer])
def test_a_wrong_password_is_named_and_not_shown(
    shop: Shop, make: type[RedisServer] | type[PostgresServer], redis_url: str, postgres_url: str
) -> None:
    with make(password="the right one") as server:
        url = server.url.replace("the right one", PASSWORD)
        [finding] = findings(shop, url, 1)
    assert "password" in finding["says"].lower()
    assert PASSWORD not in finding["says"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificate"))


def works(shop: Shop, url: str, **environment: str) -> None:
    for words in (["enqueue", "send", '{"to": "a"}'], ["worker", "--until-empty"], ["queues"]):
        result = shop.run("--store", url, *words, **environment)
        assert result.exit_code == 0, result.output
        assert PASSWORD not in result.output


def test_redis_over_tls(shop: Shop, certificate: Certificate, redis_url: str) -> None:
    with RedisServer(password=PASSWORD, certificate=certificate) as server:
        works(shop, f"{server.url}?ssl_ca_certs={certificate.authority}")
        works(shop, f"{_bare(server)}?ssl_ca_certs={certificate.authority}", REDIS_PASSWORD=PASSWORD)
        refused = shop.run("--store", server.url, "queues")
        assert refused.exit_code == 1
        assert "certificate" in refused.output.lower()
        assert PASSWORD not in refused.output


def test_postgresql_over_tls(shop: Shop, certificate: Certificate, postgres_url: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    with PostgresServer(password=PASSWORD, certificate=certificate) as server:
        works(shop, f"{server.url}?sslmode=require")
        url = f"{_bare(server)}?sslmode=verify-full&sslrootcert={certificate.authority}"
        works(shop, url, PGPASSWORD_FILE=str(secret))
        for mode in ("verify-full", "disable"):
            refused = shop.run("--store", f"{server.url}?sslmode={mode}&sslrootcert=/dev/null", "queues")
            assert refused.exit_code == 1, mode
            assert PASSWORD not in refused.output


def _bare(server: Server) -> str:
    """Without the password."""
    return server.url.replace(f":{PASSWORD}@", "@").replace("://@", "://")


@pytest.mark.parametrize(
    ("words", "ready"),
    [(("server", "--port", "0"), "up at"), (("worker",), "started: all queues"), (("scheduler",), "started: ")],
)
def test_a_service_names_its_store_without_secrets_and_warns_if_it_may_lose_jobs(
    shop: Shop, words: tuple[str, ...], ready: str
) -> None:
    try:
        server = RedisServer(password=PASSWORD, appendonly="no", maxmemory="100mb", maxmemory_policy="allkeys-lru")
    except Absent as error:
        absent(error)
    with server, shop.start("--store", server.url, *words) as process:
        assert process.stderr is not None
        said = ""
        while ready not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
    assert f"store redis://127.0.0.1:{server.port}/0" in said
    assert "no append-only file: a restart may lose everything" in said
    assert "allkeys-lru: when memory is full, Redis deletes jobs" in said
    assert PASSWORD not in said
