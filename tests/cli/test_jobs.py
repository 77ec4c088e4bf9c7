"""Enqueue, list, show and change jobs."""

from __future__ import annotations

import json

import pytest
from tests.cli.support import PATIENCE_SECONDS, USAGE, Shop, error_code, shop

from jobyard import Jobyard
from jobyard.api.schemas.jobs import JobRequest
from jobyard.domain.access import Principal, Role
from jobyard.domain.job import NewJob
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.submit import prepare, store_one

__all__ = ["shop"]

MISSING = "00000000-0000-7000-8000-000000000000"


def states(shop: Shop) -> dict[str, str]:
    return {job["id"]: job["state"] for job in shop.json("jobs", "list")["jobs"]}


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (('{"to": "anna", "copies": 2}',), None),
        (("to=anna", "copies=2"), None),
        (("-",), '{"to": "anna", "copies": 2}'),
    ],
)
def test_enqueue_accepts_json_pairs_or_standard_input(shop: Shop, words: tuple[str, ...], stdin: str | None) -> None:
    result = shop.run("enqueue", "send", *words, stdin=stdin)
    assert result.exit_code == 0, result.output
    job = shop.json("jobs", "show", result.stdout.strip())
    assert job["payload"] == {"to": "anna", "copies": 2}


def test_enqueue_passes_its_options_on(shop: Shop) -> None:
    answer = shop.json(
        *("enqueue", "send", "to=a", "--queue", "other", "--group", "g", "--priority", "7", "--delay", "60"),
        *("--unique", "key", "--tag", "x", "--tag", "y", "--max-attempts", "9", "--timeout", "5"),
    )
    assert answer["created"] is True
    job = shop.json("jobs", "show", answer["id"])
    assert (job["queue"], job["group"], job["priority"], job["unique_key"]) == ("other", "g", 7, "key")
    assert (job["tags"], job["max_attempts"], job["timeout_seconds"]) == (["x", "y"], 9, 5.0)
    assert job["run_at"] > job["created_at"]
    again = shop.run("enqueue", "send", "to=b", "--queue", "other", "--unique", "key")
    assert again.stdout.strip() == answer["id"]
    assert "unique key" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("snd", "to=a"), "unknown_kind", 'Did you mean "send"?'),
        (("send", "{"), "payload_not_json", ""),
        (("send", "[1]"), "bad_input", "Cannot read '[1]' as payload. Write name=value"),
        (("send", "1", "2"), "bad_input", "Cannot read '1' as payload. Write name=value"),
        (("send", "whom=a"), "bad_input", "send(to, copies)"),
        (("send", "to=a", "copies=many"), "bad_input", "send(to, copies)"),
        (("send", "to=a", "--delay", "-1"), "bad_option", "Error: --delay"),
        (("send", "to=a", "--max-attempts", "0"), "bad_option", "Error: --max-attempts"),
        (("send", "to=a", "--timeout", "0"), "bad_option", "Error: --timeout"),
        (("send", "to=a", "--priority", "99999999"), "bad_option", "priority"),
        (("send", "to=a", "to=b"), USAGE, "to"),
        (("send", "to=a", "{}"), "bad_input", "name=value"),
        (("send", f"to={'x' * 2_000_000}"), "payload_too_large", ""),
        (("send", "to=a", "--wait", "0"), "result_not_ready", ""),
    ],
)
def test_enqueue_rejects_invalid_input(shop: Shop, words: tuple[str, ...], code: str, hint: str) -> None:
    result = shop.run("enqueue", *words)
    assert (result.exit_code, error_code(result)) == ((2, "") if code is USAGE else (1, code))
    assert hint in result.stderr
    assert "Traceback" not in result.stderr


DEEP = 100_000


@pytest.mark.parametrize("payload", ["[" * DEEP, '{"to":' + "[" * DEEP + "]" * DEEP + "}"])
def test_enqueue_rejects_deep_nesting_in_one_line(shop: Shop, payload: str) -> None:
    result = shop.run("enqueue", "send", "-", stdin=payload)
    assert result.exit_code == 1
    assert error_code(result) == "payload_not_json"
    assert result.stderr.count("\n") == 1
    pair = shop.run("enqueue", "send", f"to={payload}")
    assert error_code(pair) == "payload_not_json"


@pytest.mark.parametrize("depth", [983, 5000])
def test_deeply_nested_payloads_are_shown(shop: Shop, depth: int) -> None:
    """Inserted without validation, as an older version or another program may do."""
    payload = b'{"to":' + b"[" * depth + b"]" * depth + b"}"

    async def insert(yard: Jobyard) -> None:
        await yard.store.insert([NewJob(id="deep", kind="send", queue="mail", payload=payload)])

    shop.do(insert)
    for words in (("jobs", "list"), ("jobs", "show", "deep")):
        for more in ((), ("--json",)):
            result = shop.run(*words, *more)
            assert result.exit_code == 0, result.output
            if more:
                assert "".join(result.stdout.split()).count("[" * depth + "]" * depth) == 1


def test_enqueue_waits_for_the_result(shop: Shop) -> None:
    with shop.start("worker") as worker:
        result = shop.run("enqueue", "send", "to=anna", "--wait", "30")
        assert json.loads(result.stdout) == {"to": "anna", "copies": 1}
        assert shop.json("enqueue", "send", "to=b", "--wait", "30")["result"] == {"to": "b", "copies": 1}
        failed = shop.run("enqueue", "fail", "--wait", "30")
        assert failed.exit_code == 1
        assert (error_code(failed), "no [red]way[/red]" in failed.stderr) == ("job_failed", True)
        worker.terminate()
        worker.communicate(timeout=PATIENCE_SECONDS)
    assert worker.returncode == 0


def test_list_filters_and_pages(shop: Shop) -> None:
    a = shop.enqueue("send", {"to": "a"}, group="g", tags=["x"])
    b = shop.enqueue("fail")
    c = shop.enqueue("hang")

    def ids(*words: str) -> list[str]:
        return [job["id"] for job in shop.json("jobs", "list", *words)["jobs"]]

    assert ids() == [c, b, a]
    assert ids("--queue", "mail") == [b, a]
    assert ids("--group", "g") == ids("--tag", "x") == ids("--kind", "send") == [a]
    assert ids("--state", "failed", "--state", "timeout") == []
    first = shop.json("jobs", "list", "--limit", "2")
    assert [job["id"] for job in first["jobs"]] == [c, b]
    assert ids("--limit", "2", "--cursor", first["cursor"]) == [a]
    plain = shop.run("jobs", "list", "--limit", "1")
    assert plain.stdout.splitlines()[1].split("\t")[:4] == [c, "PENDING", "hang", "slow"]
    assert "--cursor" in plain.stderr
    assert shop.run("jobs", "list", "--state", "odd").exit_code == 2


def test_an_invalid_cursor_is_rejected(shop: Shop) -> None:
    shop.enqueue("fail")
    result = shop.run("jobs", "list", "--cursor", "abc")
    assert (result.exit_code, error_code(result)) == (1, "bad_input")


def test_show_prints_all_details(shop: Shop) -> None:
    done, dead = shop.enqueue("send", {"to": "anna"}, tags=["x"], group="g"), shop.enqueue("fail")
    shop.work_off()
    text = shop.run("jobs", "show", done).stdout
    for part in ("COMPLETED", '{"to":"anna"}', '{"to":"anna","copies":1}', "50% half", "connect", "connected", "ran "):
        assert part in text
    assert "ValueError: no [red]way[/red]" in shop.run("dead", "list").stdout
    text = shop.run("jobs", "show", dead).stdout
    for part in ("FAILED", "no [red]way[/red]", "ValueError", "Traceback", "Timeline"):
        assert part in text
    job = shop.json("jobs", "show", dead)
    assert job["errors"][0]["type"] == "ValueError"
    assert job["finished_at"].endswith("Z")
    result = shop.run("jobs", "show", MISSING)
    assert (result.exit_code, error_code(result)) == (1, "job_not_found")


def test_each_change_by_id(shop: Shop) -> None:
    a, b, c = shop.enqueue("send", {"to": "a"}), shop.enqueue("fail"), shop.enqueue("send", {"to": "c"}, delay=600)
    assert shop.json("jobs", "prioritise", "--priority", "5", a)["changed"] == [a]
    assert shop.json("jobs", "show", a)["priority"] == 5
    assert shop.json("jobs", "run-now", c)["changed"] == [c]
    assert shop.json("jobs", "cancel", c, "--reason", "mistake")["changed"] == [c]
    assert shop.json("jobs", "show", c)["reason"] == "mistake"
    shop.work_off()
    assert states(shop) == {a: "COMPLETED", b: "FAILED", c: "CANCELLED"}
    assert shop.json("jobs", "retry", b, c)["changed"] == [b, c]
    assert states(shop)[b] == "PENDING"
    assert shop.json("jobs", "delete", a)["changed"] == [a]
    assert a not in states(shop)


def test_a_change_that_is_not_possible_is_an_error(shop: Shop) -> None:
    a = shop.enqueue("send", {"to": "a"})
    result = shop.run("jobs", "retry", a, MISSING)
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["Error", "Error"]
    assert a in result.stderr
    assert MISSING in result.stderr
    result = shop.run("jobs", "retry", a, MISSING, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"changed": [], "unchanged": [a], "missing": [MISSING]}


@pytest.mark.parametrize(
    "words",
    [
        ("cancel",),
        ("cancel", MISSING, "--all-matching"),
        ("cancel", MISSING, "--queue", "mail"),
        ("prioritise", MISSING),
    ],
)
def test_ids_and_filters_exclude_each_other(shop: Shop, words: tuple[str, ...]) -> None:
    shop.enqueue("fail")
    assert shop.run("jobs", *words).exit_code == 2


def test_all_matching_needs_yes_without_a_terminal(shop: Shop) -> None:
    jobs = [shop.enqueue("send", {"to": "a"}) for _ in range(3)]
    other = shop.enqueue("hang")
    refused = shop.run("jobs", "cancel", "--queue", "mail", "--all-matching")
    assert refused.exit_code == 2
    assert "Cancel 3 jobs (PENDING or RUNNING, queue mail)?" in refused.stderr
    assert "--yes" in refused.stderr
    assert set(states(shop).values()) == {"PENDING"}
    answer = shop.json("jobs", "cancel", "--queue", "mail", "--all-matching", "--yes")
    assert answer == {"matched": 3, "changed": 3, "unchanged": 0}
    assert states(shop) == {**dict.fromkeys(jobs, "CANCELLED"), other: "PENDING"}


def test_all_matching_asks_on_a_terminal(shop: Shop) -> None:
    job = shop.enqueue("send", {"to": "a"})
    with shop.on_terminal("jobs", "delete", "--all-matching") as terminal:
        terminal.expect("Delete 1 job")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert states(shop) == {job: "PENDING"}
    with shop.on_terminal("jobs", "delete", "--all-matching") as terminal:
        terminal.expect("Delete 1 job")
        terminal.type("y\n")
        assert terminal.end() == 0
        assert "Deleted: 1 job." in terminal.seen
    assert states(shop) == {}


def test_retry_all_skips_cancelled_jobs_by_default(shop: Shop) -> None:
    dead = shop.enqueue("fail")
    shop.work_off()
    cancelled = shop.enqueue("send", {"to": "a"})
    shop.run("jobs", "cancel", cancelled)
    assert shop.json("jobs", "retry", "--all-matching", "--yes")["changed"] == 1
    assert states(shop) == {dead: "PENDING", cancelled: "CANCELLED"}
    assert shop.json("jobs", "retry", "--state", "CANCELLED", "--all-matching", "--yes")["changed"] == 1
    unfit = shop.run("jobs", "retry", "--state", "COMPLETED", "--all-matching", "--yes")
    assert unfit.exit_code == 2


def test_all_matching_does_not_ask_if_nothing_matches(shop: Shop) -> None:
    shop.enqueue("fail")
    assert shop.json("jobs", "retry", "--all-matching") == {"matched": 0, "changed": 0, "unchanged": 0}


def test_jobs_are_found_by_text_and_time(shop: Shop) -> None:
    ids = [shop.json("enqueue", "send", f"to={name}")["id"] for name in ("anna", "bob", "joanna")]
    moment = shop.json("jobs", "show", ids[1])["created_at"]

    def found(*words: str) -> list[str]:
        return [job["id"] for job in shop.json("jobs", "list", *words)["jobs"]][::-1]

    assert found("--text", "ANNA") == [ids[0], ids[2]]
    assert found("--created-after", moment) == ids[1:]
    assert found("--created-before", moment) == ids[:1]
    assert found("--created-after", moment, "--text", "anna") == ids[2:]
    assert found("--created-after", "2999-01-01") == []
    refused = shop.run("jobs", "list", "--created-after", "soon")
    assert (refused.exit_code, "2026-11-16T09:30:00Z" in refused.output) == (2, True)


def test_a_bulk_change_filters_by_text(shop: Shop) -> None:
    ids = [shop.json("enqueue", "send", f"to={name}")["id"] for name in ("anna", "bob")]
    assert shop.run("jobs", "cancel", "--text", "bob", "--all-matching", "--yes").exit_code == 0
    assert [states(shop)[job_id] for job_id in ids] == ["PENDING", "CANCELLED"]


def test_internal_tags_are_not_shown(shop: Shop) -> None:
    async def hand_in(yard: Jobyard) -> str:
        who = Principal(id="3f2a90c1d4e5", name="ci", role=Role.OPERATOR)
        request = JobRequest(kind="send", payload={"to": "a"}, queue="mail")
        return (await store_one(yard.store, prepare(JobFactory(), who, request, "key"))).inserted.id

    job_id = shop.do(hand_in)
    for words in (
        ["jobs", "list"],
        ["jobs", "list", "--json"],
        ["jobs", "show", job_id],
        ["jobs", "show", job_id, "--json"],
    ):
        shown = shop.run(*words).stdout
        assert job_id in shown
        assert "idempotency" not in shown
