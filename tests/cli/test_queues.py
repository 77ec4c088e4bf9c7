"""Queues, groups, limits, explain and dead letters."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.support import Shop, error_code, shop

from jobyard import Jobyard
from jobyard.errors import NotPossible
from jobyard.operations.commands import Commands
from jobyard.operations.local import LocalOperations
from jobyard.ports.admin_store import Action

__all__ = ["shop"]


def test_queues_lists_counts(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    shop.enqueue("fail")
    shop.work_off()
    shop.enqueue("send", {"to": "b"})
    shop.enqueue("send", {"to": "c"}, delay=60)
    (mail,) = shop.json("queues")["queues"]
    assert mail == shop.json("queues", "list")["queues"][0]
    assert {word: mail[word] for word in ("waiting", "delayed", "running", "completed", "failed", "paused")} == {
        "waiting": 1,
        "delayed": 1,
        "running": 0,
        "completed": 1,
        "failed": 1,
        "paused": False,
    }
    assert shop.run("queues").stdout.splitlines()[1].split("\t")[:7] == ["mail", "1", "1", "0/10", "0", "1", "1"]


def test_pause_and_resume_a_queue(shop: Shop) -> None:
    job = shop.enqueue("send", {"to": "a"})
    assert shop.run("queues", "pause", "mail").stdout == "Queue mail is paused.\n"
    assert "paused" in shop.run("queues").stdout
    assert "queue_paused" in shop.run("explain", job).stdout
    shop.work_off()
    assert shop.json("jobs", "show", job)["state"] == "PENDING"
    assert shop.json("queues", "resume", "mail") == {"queue": "mail", "group": None, "paused": False}
    shop.work_off()
    assert shop.json("jobs", "show", job)["state"] == "COMPLETED"


def test_changed_limits_are_shown_and_reset(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})

    async def change(yard: Jobyard) -> None:
        await LocalOperations(yard.store).configure("mail", {"max_running": 4})

    shop.do(change)
    assert "limits changed" in shop.run("queues").stdout
    assert "max_running 4 (declared: 10)" in shop.run("limits", "show", "mail").stdout
    assert shop.json("limits", "show", "mail")["settings_origin"] == "operator"
    reset = shop.json("limits", "reset", "mail")
    assert (reset["settings_origin"], reset["settings"]["max_running"]) == ("declared", 10)
    assert "changed" not in shop.run("queues").stdout


def test_an_empty_queue_is_deleted(shop: Shop) -> None:
    job = shop.enqueue("send", {"to": "a"}, queue="odd")
    refused = shop.run("queues", "delete", "odd")
    assert (refused.exit_code, error_code(refused)) == (1, "not_possible")
    shop.run("jobs", "delete", job, "--yes")
    assert shop.json("queues", "delete", "odd") == {"queue": "odd", "deleted": True}
    assert "odd" not in [queue["name"] for queue in shop.json("queues")["queues"]]
    assert shop.run("queues", "delete", "odd").exit_code == 1


def test_drain_deletes_waiting_jobs(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    shop.enqueue("send", {"to": "b"}, delay=60)
    other = shop.enqueue("hang")
    assert shop.run("queues", "drain", "mail").exit_code == 2
    assert shop.json("queues", "drain", "mail", "--yes")["changed"] == 2
    assert [job["id"] for job in shop.json("jobs", "list")["jobs"]] == [other]


def test_groups_list_shows_own_and_inherited_limits(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"}, group="team-a")
    shop.enqueue("send", {"to": "b"})
    assert shop.json("limits", "set", "mail", "team-b", "25") == {"queue": "mail", "group": "team-b", "limit": 25}
    groups = {group["name"]: group for group in shop.json("groups", "list", "mail")["groups"]}
    assert set(groups) == {None, "team-a", "team-b"}
    assert (groups["team-a"]["limit"], groups["team-a"]["effective_limit"]) == (None, 2)
    assert groups["team-b"]["effective_limit"] == 25
    shown = shop.json("limits", "show", "mail")
    assert (shown["max_running"], shown["max_per_group"]) == (10, 2)
    assert [group["group"] for group in shown["groups"]] == ["team-b"]
    assert [group["effective_limit"] for group in shop.json("limits", "show", "mail", "team-a")["groups"]] == [2]
    assert shop.json("limits", "remove", "mail", "team-b")["effective_limit"] == 2
    assert shop.json("limits", "show", "mail")["groups"] == []
    page = shop.run("groups", "list", "mail", "--limit", "2")
    assert page.stdout.splitlines()[2].split("\t") == ["team-a", "1", "0", "0/2", "queue's", ""]
    assert "--after team-a" in page.stderr


def test_pause_one_group_and_block_another(shop: Shop) -> None:
    a, b = shop.enqueue("send", {"to": "a"}, group="a"), shop.enqueue("send", {"to": "b"}, group="b")
    assert shop.run("groups", "pause", "mail", "a").stdout == "Group a of queue mail is paused.\n"
    assert "(blocked)" in shop.run("limits", "set", "mail", "b", "0").stdout
    assert {cause["code"] for cause in shop.json("explain", a)["causes"]} == {"group_paused", "no_worker"}
    assert {cause["code"] for cause in shop.json("explain", b)["causes"]} == {"group_blocked", "no_worker"}
    shop.work_off()
    shop.run("groups", "resume", "mail", "a")
    shop.run("limits", "set", "mail", "b", "1")
    shop.work_off()
    assert {shop.json("jobs", "show", job)["state"] for job in (a, b)} == {"COMPLETED"}


@pytest.mark.parametrize(
    "words",
    [
        ("queues", "pause", "mial"),
        ("queues", "resume", "mial"),
        ("queues", "drain", "mial"),
        ("groups", "list", "mial"),
        ("groups", "pause", "mial", "a"),
        ("limits", "set", "mial", "a", "1"),
        ("limits", "show", "mial"),
        ("limits", "remove", "mial", "a"),
    ],
)
def test_a_mistyped_queue_is_not_created(shop: Shop, words: tuple[str, ...]) -> None:
    shop.enqueue("send", {"to": "a"})
    result = shop.run(*words)
    assert result.exit_code == 1
    assert error_code(result) == "bad_option"
    assert 'Did you mean "mail"?' in result.stderr
    assert [queue["name"] for queue in shop.json("queues")["queues"]] == ["mail"]


@pytest.mark.parametrize(("limit", "code"), [("-1", 1), ("99999999999", 1), ("many", 2)])
def test_invalid_limits_are_rejected(shop: Shop, limit: str, code: int) -> None:
    shop.enqueue("send", {"to": "a"})
    for words in (("--", "mail", "a", limit), ("mail", "a", limit)):
        result = shop.run("limits", "set", *words)
        assert result.exit_code == code
        assert limit in result.stderr


def test_a_negative_limit_is_not_an_option(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    result = shop.run("limits", "set", "mail", "a", "-25", "--json")
    assert (result.exit_code, error_code(result)) == (1, "bad_option")
    assert "limit must be a whole number from 0 to 1000000000, not -25." in result.stderr
    assert 'No such option "--lmit"' in shop.run("limits", "set", "mail", "a", "-1", "--lmit").stderr


def test_explain_prints_a_sentence_and_codes(shop: Shop) -> None:
    job = shop.enqueue("send", {"to": "a"}, delay=3600)
    text = shop.run("explain", job).stdout
    assert text.startswith("PENDING  Not due until ")
    assert "not_due" in text
    assert shop.json("explain", job)["sentence"] in text


def test_explain_says_a_single_cause_once_and_what_to_do(shop: Shop) -> None:
    text = shop.run("explain", shop.enqueue("send", {"to": "a"})).stdout
    assert text.splitlines() == [
        "PENDING  No live worker takes queue mail. Start a worker for this queue.",
        "  no_worker",
    ]
    shop.run("queues", "pause", "mail")
    both = shop.run("explain", shop.enqueue("send", {"to": "b"})).stdout
    assert "Resume the queue to start its jobs. Start a worker" in both
    assert "queue_paused  queue mail is paused\n" in both
    assert error_code(shop.run("explain", "nothing")) == "job_not_found"


def test_dead_letters_are_listed_and_redriven(shop: Shop) -> None:
    one, two = shop.enqueue("fail"), shop.enqueue("fail")
    shop.work_off()
    assert [job["id"] for job in shop.json("dead", "list")["jobs"]] == [two, one]
    assert [job["id"] for job in shop.json("dead")["jobs"]] == [two, one]
    assert shop.json("dead", "list", "--queue", "other")["jobs"] == []
    assert "no [red]way[/red]" in shop.run("dead", "list").stdout
    assert shop.json("dead", "redrive", one)["changed"] == [one]
    assert shop.run("dead", "redrive").exit_code == 2
    assert shop.run("dead", "redrive", one, "--queue", "mail").exit_code == 2
    assert shop.json("dead", "redrive", "--kind", "fail", "--yes")["changed"] == 1
    assert shop.json("dead", "list")["jobs"] == []
    assert len(shop.json("jobs", "show", two)["errors"]) == 1


def test_a_redrive_names_the_holder_of_the_unique_key(shop: Shop) -> None:
    dead = shop.enqueue("fail", unique="invoice-7")
    shop.work_off()
    holder = shop.enqueue("fail", unique="invoice-7")
    for words in (("dead", "redrive", dead), ("jobs", "retry", dead)):
        result = shop.run(*words)
        assert result.exit_code == 1
        assert "invoice-7" in result.stderr
        assert holder in result.stderr
    assert shop.json("jobs", "retry", "--all-matching", "--yes") == {"matched": 1, "changed": 0, "unchanged": 1}

    async def one(yard: Jobyard) -> str:
        with pytest.raises(NotPossible) as caught:
            await Commands(yard.store).change_one(Action.RETRY, dead)
        return str(caught.value)

    assert "invoice-7" in shop.do(one)
    shop.run("jobs", "delete", holder)
    assert shop.json("dead", "redrive", dead)["changed"] == [dead]


def test_cancel_distinguishes_waiting_and_running_jobs(shop: Shop) -> None:
    def jobs() -> list[str]:
        waiting, running = shop.enqueue("send", {"to": "a"}), shop.enqueue("hang")

        async def claim(yard: Jobyard) -> None:
            await yard.store.exchange("somebody", [], ["slow"], 1, 600)

        shop.do(claim)
        return [waiting, running]

    assert shop.run("jobs", "cancel", *jobs()).stdout == "Cancelled: 1 job; asked to stop: 1 running job.\n"
    jobs()
    text = shop.run("jobs", "cancel", "--all-matching", "--yes").stdout
    assert text == "Cancelled: 1 job; asked to stop: 2 running jobs.\n"
    assert shop.run("jobs", "cancel", "--queue", "slow", "--all-matching", "--yes").stdout == (
        "Asked to stop: 2 running jobs.\n"
    )


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize(
    "words", [("jobs", "list"), ("queues",), ("top", "--once"), ("doctor",), ("bench", "--this-store")], ids=" ".join
)
def test_the_database_of_another_program_is_not_changed(shop: Shop, words: tuple[str, ...], mode: str) -> None:
    with closing(sqlite3.connect("django.db")) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE users (a)")
        connection.commit()
    before, files = Path("django.db").read_bytes(), sorted(Path().glob("django.db*"))
    result = shop.run("--store", "sqlite:///django.db", *words)
    assert result.exit_code == 1
    assert "django.db has no jobyard tables" in result.output
    assert Path("django.db").read_bytes() == before
    assert sorted(Path().glob("django.db*")) == files
    assert shop.run("--store", "sqlite:///django.db", "enqueue", "send", "to=a").exit_code == 0
    assert shop.run("--store", "sqlite:///django.db", "jobs", "list").exit_code == 0


def test_the_open_database_of_another_program_is_not_changed(shop: Shop) -> None:
    with closing(sqlite3.connect("django.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE users (a)")
        connection.commit()
        result = shop.run("--store", "sqlite:///django.db", "jobs", "list")
        assert error_code(result) == "configuration"
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("users",)]
    Path("empty.db").touch()
    assert error_code(shop.run("--store", "sqlite:///empty.db", "jobs", "list")) == "configuration"
    assert Path("empty.db").read_bytes() == b""
