"""Redis users: the one in the documents works; missing permissions are named at open, or by diagnose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.servers import RedisServer
from tests.stores.redis_support import jobs, running, server

from jobyard.domain.job import Job, NewJob, State
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import StoreUnavailable
from jobyard.ports.store import Level
from jobyard.stores.redis import RedisStore

__all__ = ["server"]  # the fixture


@pytest.mark.parametrize("forbidden", ["-info -config", "-config"])
async def test_a_user_without_info_or_config(forbidden: str) -> None:
    with running() as own:
        owner = RedisStore(own.url)
        await owner.open()
        rules = ["on", ">secret", "~*", "&*", "+@all", *forbidden.split()]
        await owner.client.execute("ACL", "SETUSER", "app", *rules)
        await owner.close()
        store = store_of(own, "app", "secret")
        await store.open()
        await store.insert(jobs("a"))
        assert [lease.job_id for lease in (await store.exchange("w", [], [], 1, 10.0)).leases] == ["a"]
        found = await store.diagnose()
        if "-info" in forbidden:
            assert [(finding.level, finding.check) for finding in found] == [(Level.WARN, "server")]
        else:
            assert Level.FAIL not in {finding.level for finding in found}
            assert "persistence" in {finding.check for finding in found}
        await store.close()


def documented_user() -> list[str]:
    """The words of the ACL line in docs/redis.md."""
    document = Path(__file__).parents[2] / "docs" / "redis.md"
    [line] = re.findall(r"^ACL SETUSER .*$", document.read_text("utf-8"), re.MULTILINE)
    return str(line).split()


def store_of(its: RedisServer, user: str, password: str) -> RedisStore:
    return RedisStore(its.url.replace("redis://", f"redis://{user}:{password}@"))


async def test_the_documented_user_may_do_everything(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    server.ask(*documented_user())
    store = store_of(server, "jobyard", "password")
    await store.open()
    await store.insert([NewJob(id="a", kind="k", delay_seconds=0.001), *jobs("b", tags=("t",))])
    ends: list[Job | None] = []
    while len(ends) < 2:
        for lease in (await store.exchange("w", [], [], 2, 10.0)).leases:
            done = Settlement(lease.key, Transition(to=State.COMPLETED, result=b"null"))
            assert (await store.exchange("w", [done], [], 0, 10.0)).refused == ()
            ends.append(await store.wait_for_end(lease.job_id, 5.0))
    assert {job and job.state for job in ends} == {State.COMPLETED}
    assert Level.FAIL not in {finding.level for finding in await store.diagnose()}
    assert await store.audit() == []
    await store.close()


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("~jobyard:* resetchannels +@all", "PUBLISH, PUBSUB, SUBSCRIBE|PUBLISH, SUBSCRIBE"),
        ("~jobyard:* &* +@all -zadd", "ZADD"),
        ("~other:* &* +@all", "HSET"),
    ],
)
async def test_open_names_missing_permissions_and_writes_nothing(
    server: RedisServer,
    rules: str,
    named: str,
) -> None:
    server.ask("FLUSHALL")
    server.ask("ACL", "SETUSER", "limited", "reset", "on", ">secret", *rules.split())
    store = store_of(server, "limited", "secret")
    with pytest.raises(StoreUnavailable, match=named):
        await store.open()
    assert server.ask("DBSIZE") == b":0\r\n"


async def test_a_denied_publish_does_not_fail_a_command(server: RedisServer) -> None:
    """The permission was removed after the store was opened."""
    server.ask("FLUSHALL")
    server.ask(*documented_user())
    store = store_of(server, "jobyard", "password")
    await store.open()
    server.ask("HSET", "jobyard:{default}:awaited", "a", "handle ")
    server.ask("SADD", "jobyard:sleepers", "handle")
    server.ask("ACL", "SETUSER", "jobyard", "resetchannels")
    store = store_of(server, "jobyard", "password")
    store.client.is_open = True
    await store.insert(jobs("a"))
    [lease] = (await store.exchange("w", [], [], 1, 10.0)).leases
    failed = Settlement(lease.key, Transition(to=State.FAILED, reason="x"))
    assert (await store.exchange("w", [failed], [], 0, 10.0)).refused == ()
    assert await store.audit() == []
    await store.close()
