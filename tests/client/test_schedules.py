"""Schedules from afar: every verb of the client, and `jobyard cron --server` beside `jobyard cron`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cli.support import Shop, shop
from tests.client.support import Site
from tests.client.test_command_line import Far, far

from jobyard.client import BlockingClient, Client
from jobyard.errors import BadInput, BadOption, Forbidden, NotFound, NotPossible

__all__ = ["far", "shop"]


async def test_every_verb(here: Site, client: Client) -> None:
    made = await client.add_schedule("nightly", "0 2 * * *", "send", {"to": "ann"}, timezone="Asia/Seoul", max_retry=1)
    assert (made.in_words, made.payload, made.max_retry) == ("At 02:00 every day", {"to": "ann"}, 1)
    assert [each.name async for each in client.schedules(page_size=1)] == ["nightly"]
    start = datetime(2030, 1, 1, tzinfo=UTC)
    changed = await client.edit_schedule("nightly", expression="@hourly", start_at=start, timeout_seconds=None)
    assert (changed.expression, changed.start_at, changed.timeout_seconds) == (
        "@hourly", "2030-01-01T00:00:00.000Z", None,
    )  # fmt: skip
    assert await client.schedule("nightly") == changed
    assert (await client.next_of_schedule("nightly", 2)).items == (
        "2030-01-01T00:00:00.000Z",
        "2030-01-01T01:00:00.000Z",
    )
    assert not (await client.pause_schedule("nightly")).enabled
    assert (await client.resume_schedule("nightly")).enabled
    job = await client.job(await client.run_schedule("nightly"))
    assert (job.kind, job.payload) == ("send", {"to": "ann"})
    assert [each async for each in client.schedule_history("nightly")] == []
    await client.remove_schedule("nightly")
    assert [each async for each in client.schedules()] == []
    told = await client.next_of_cron("0 9 * * 1-5", "Asia/Seoul", 1)
    assert (told.in_words, told.items[0][10:]) == ("At 09:00 on Monday through Friday", "T00:00:00.000Z")


async def test_refusals_are_those_of_the_store_itself(here: Site, client: Client) -> None:
    await client.add_schedule("nightly", "@daily", "send", {"to": "ann"})
    with pytest.raises(NotPossible, match="There is a schedule nightly already"):
        await client.add_schedule("nightly", "@daily", "send", {"to": "ann"})
    with pytest.raises(BadOption, match='Did you mean "Asia/Seoul"'):
        await client.edit_schedule("nightly", timezone="Asia/Soul")
    with pytest.raises(BadOption, match=r'A schedule has no timezon\. Did you mean "timezone"'):
        await client.edit_schedule("nightly", timezon="UTC")
    with pytest.raises(BadOption, match="cannot be like that"):
        await client.edit_schedule("nightly", priority="high")
    with pytest.raises(BadInput, match="no cron expression"):
        await client.next_of_cron("soon")
    with pytest.raises(NotFound, match="There is no schedule other"):
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


def both(shop: Shop, far: Far, *words: str) -> list[Any]:
    """What is said near and far, without what passes meanwhile."""
    found = []
    for run in (shop.run, far.run):
        result = run("cron", *words, "--json")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    return found


def test_near_and_far_say_the_same(shop: Shop, far: Far) -> None:
    added = far.run(
        "cron", "add", "nightly", "0 2 * * *", "send", "to=ann", "--tz", "Asia/Seoul", "--start", "2020-01-01"
    )
    assert added.output.startswith("nightly: At 02:00 every day (Asia/Seoul)\nnext "), added.output
    for words in (("list",), ("show", "nightly"), ("next", "nightly"), ("history", "nightly")):
        near, from_afar = both(shop, far, *words)
        assert near == from_afar
    edited = far.run("cron", "edit", "nightly", "--no-start", "--jitter", "3", "--json")
    schedule = json.loads(edited.stdout)["schedule"]
    assert (schedule["start_at"], schedule["jitter_seconds"], schedule["queue"]) == (None, 3.0, "mail")
    assert far.run("cron", "pause", "nightly").output == "Schedule nightly is paused.\n"
    assert "is not paused any more; next " in far.run("cron", "resume", "nightly").output
    assert len(far.run("cron", "run", "nightly").output.strip()) == 36
    unknown = far.run("cron", "show", "nightli")
    assert (unknown.exit_code, unknown.output) == (1, 'error: There is no schedule nightli. Did you mean "nightly"?\n')
    wrong = far.run("cron", "add", "x", "@daily", "sned")
    assert (wrong.exit_code, 'Did you mean "send"?' in wrong.output) == (1, True)
    assert far.run("cron", "remove", "nightly", "--yes").output == "Schedule nightly is removed.\n"
    assert both(shop, far, "list")[0] == {"schedules": []}


def test_what_runs_as_a_service_needs_the_store(shop: Shop, far: Far) -> None:
    answer = far.run("scheduler")
    assert answer.exit_code == 1
    assert "needs the store itself" in answer.output
