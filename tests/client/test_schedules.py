"""Schedules through the client, and `jobyard cron --server` compared with `jobyard cron`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.cli.support import Shop, error_code, shop
from tests.client.support import Site
from tests.client.test_command_line import RemoteShop, remote

from jobyard.client import BlockingClient, Client
from jobyard.errors import BadInput, BadOption, Forbidden, NotFound, NotPossible

__all__ = ["remote", "shop"]


async def test_every_verb(here: Site, client: Client) -> None:
    made = await client.add_schedule("nightly", "0 2 * * *", "send", {"to": "ann"}, tz="Asia/Seoul", max_retry=1)
    assert (made.in_words, made.payload, made.max_retry) == ("At 02:00 every day", {"to": "ann"}, 1)
    assert [each.name async for each in client.schedules(page_size=1)] == ["nightly"]
    start = datetime(2030, 1, 1, tzinfo=UTC)
    changed = await client.edit_schedule(
        "nightly", expression="@hourly", start=start, timeout=None, jitter=timedelta(minutes=1)
    )
    assert (changed.expression, changed.start_at, changed.timeout_seconds, changed.jitter_seconds) == (
        "@hourly", "2030-01-01T00:00:00.000Z", None, 60,
    )  # fmt: skip
    assert await client.schedule("nightly") == changed
    assert (await client.next_of_schedule("nightly", 2)).items == (
        "2030-01-01T00:00:00.000Z",
        "2030-01-01T01:00:00.000Z",
    )
    assert not (await client.pause_schedule("nightly")).enabled
    assert (await client.resume_schedule("nightly")).enabled
    job = await client.get(await client.run_schedule("nightly"))
    assert (job.kind, job.payload) == ("send", {"to": "ann"})
    assert [each async for each in client.schedule_history("nightly")] == []
    await client.remove_schedule("nightly")
    assert [each async for each in client.schedules()] == []
    response = await client.next_of_cron("0 9 * * 1-5", "Asia/Seoul", 1)
    assert (response.in_words, response.items[0][10:]) == ("At 09:00 on Monday through Friday", "T00:00:00.000Z")


async def test_errors_are_those_of_a_local_store(here: Site, client: Client) -> None:
    await client.add_schedule("nightly", "@daily", "send", {"to": "ann"})
    with pytest.raises(NotPossible):
        await client.add_schedule("nightly", "@daily", "send", {"to": "ann"})
    with pytest.raises(BadOption, match='Did you mean "Asia/Seoul"'):
        await client.edit_schedule("nightly", tz="Asia/Soul")
    with pytest.raises(BadOption, match='Did you mean "timeout"'):
        await client.edit_schedule("nightly", timeot=1)  # type: ignore[call-arg]
    with pytest.raises(BadOption):
        await client.edit_schedule("nightly", priority="high")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        await client.next_of_cron("soon")
    with pytest.raises(NotFound):
        await client.schedule("other")
    async with here.client("viewer") as viewer:
        with pytest.raises(Forbidden):
            await viewer.pause_schedule("nightly")


async def test_for_synchronous_programs(here: Site) -> None:
    token = await here.token()

    def work() -> list[str]:
        with BlockingClient(here.url, token) as client:
            client.add_schedule("nightly", "@daily", "send", {"to": "ann"})
            client.pause_schedule("nightly")
            return [f"{each.name} {each.enabled}" for each in client.schedules()]

    assert await asyncio.to_thread(work) == ["nightly False"]


def both(shop: Shop, remote: RemoteShop, *words: str) -> list[Any]:
    """The JSON output of a command, local and remote."""
    found = []
    for run in (shop.run, remote.run):
        result = run("cron", *words, "--json")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    return found


def test_cron_commands_are_the_same_locally_and_remotely(shop: Shop, remote: RemoteShop) -> None:
    added = remote.run(
        "cron", "add", "nightly", "0 2 * * *", "send", "to=ann", "--tz", "Asia/Seoul", "--start", "2020-01-01"
    )
    assert added.output.startswith("nightly: At 02:00 every day (Asia/Seoul)\nnext "), added.output
    for words in (("list",), ("show", "nightly"), ("next", "nightly"), ("history", "nightly")):
        local, remotely = both(shop, remote, *words)
        assert local == remotely
    edited = remote.run("cron", "edit", "nightly", "--no-start", "--jitter", "3", "--json")
    schedule = json.loads(edited.stdout)["schedule"]
    assert (schedule["start_at"], schedule["jitter_seconds"], schedule["queue"]) == (None, 3.0, "mail")
    assert remote.run("cron", "pause", "nightly").output == "Schedule nightly is paused.\n"
    assert "; next " in remote.run("cron", "resume", "nightly").output
    assert len(remote.run("cron", "run", "nightly").output.strip()) == 36
    unknown = remote.run("cron", "show", "nightli")
    assert (unknown.exit_code, error_code(unknown), 'Did you mean "nightly"?' in unknown.output) == (
        1,
        "not_found",
        True,
    )
    wrong = remote.run("cron", "add", "x", "@daily", "sned")
    assert (wrong.exit_code, 'Did you mean "send"?' in wrong.output) == (1, True)
    assert remote.run("cron", "remove", "nightly", "--yes").output == "Schedule nightly is removed.\n"
    assert both(shop, remote, "list")[0] == {"schedules": []}


def test_a_scheduler_needs_the_store(shop: Shop, remote: RemoteShop) -> None:
    response = remote.run("scheduler")
    assert (response.exit_code, error_code(response)) == (1, "configuration")
