"""Taking over the pending lists of an older manager from a real Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.cli.support import error_code
from tests.cli.support import shop as shop  # noqa: PLC0414  # a fixture
from tests.github.runner_site import LABELS
from tests.github.test_runner_cli import GitHubThread, Runners
from tests.github.test_runner_cli import github as github  # noqa: PLC0414  # a fixture
from tests.github.test_runner_cli import runners as runners  # noqa: PLC0414  # a fixture

from jobyard.github.takeover import read_entry

PREFIX = "older-manager"


class OldManager:
    """The lists of an older manager, under a prefix of their own: the server is shared with other tests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.redis = redis.Redis.from_url(url)

    def add(self, org: str, *entries: Any, key: str = "pending") -> None:
        values = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
        self.redis.rpush(f"{PREFIX}:{key}:{org}", *values)

    def content(self) -> dict[bytes, list[Any]]:
        keys = sorted(self.redis.scan_iter(f"{PREFIX}:*", _type="LIST"))
        return {key: self.redis.lrange(key, 0, -1) for key in keys}

    def clear(self) -> None:
        for key in self.redis.scan_iter(f"{PREFIX}:*"):
            self.redis.delete(key)


@pytest.fixture
def old(redis_url: str) -> Iterator[OldManager]:
    made = OldManager(redis_url)
    made.clear()
    yield made
    made.clear()
    made.redis.close()


def entry(job_id: int, org: str = "acme", **more: Any) -> dict[str, Any]:
    facts = {"job_id": job_id, "run_id": 1, "job_name": f"build {job_id}", "repo_full_name": f"{org}/shop"}
    return {**facts, "labels": list(LABELS), "org_name": org, **more}


def imported(runners: Runners, old: OldManager, *words: str) -> tuple[int, dict[Any, str]]:
    result = runners.run("runners", "import", old.url, "--pattern", f"{PREFIX}:*pending*", *words, "--json")
    assert result.stdout, result.output
    return result.exit_code, {job.get("job_id"): job["result"] for job in json.loads(result.stdout)["jobs"]}


def waiting(runners: Runners) -> list[int]:
    return [job["job_id"] for job in runners.json("runners", "jobs")["jobs"]]


def test_jobs_that_github_has_queued_are_entered_once(runners: Runners, old: OldManager, github: GitHubThread) -> None:
    queued, cancelled = github.queue("acme/shop"), github.queue("acme/shop")
    github.call(lambda model: model.cancel(cancelled.run))
    other = github.queue("beta/shop")
    old.add("acme", entry(queued.id), entry(cancelled.id), entry(424242))
    old.add("beta", entry(other.id, "beta"), key="runner-pending-jobs")
    old.redis.set(f"{PREFIX}:pending:count", 7)  # not a list
    before = old.content()
    expected = {queued.id: "new", cancelled.id: "over", 424242: "over", other.id: "new"}
    assert imported(runners, old, "--dry-run") == (0, expected)
    assert waiting(runners) == []
    expected |= {queued.id: "entered", other.id: "entered"}
    assert imported(runners, old) == (0, expected)
    assert sorted(waiting(runners)) == sorted([queued.id, other.id])
    expected |= {queued.id: "known", other.id: "known"}
    assert imported(runners, old) == (0, expected)
    assert sorted(waiting(runners)) == sorted([queued.id, other.id])
    assert old.content() == before, "the source is not changed"


def test_without_check_entries_are_taken_as_they_are(runners: Runners, old: OldManager) -> None:
    later = entry(31, created_at="2026-11-17T10:00:00Z")
    earlier = entry(32, created_at=1_700_000_000, labels="self-hosted,code-linux")
    old.add("acme", later, earlier, entry(33, labels=["gpu"]), entry(31))
    old.add("acme", "no json", {"job_id": 34}, entry(0))
    status, results = imported(runners, old, "--no-check")
    assert (status, results) == (1, {31: "entered", 32: "entered", 33: "unserved", None: "invalid"})
    assert waiting(runners) == [32, 31], "oldest first"
    [first, _] = runners.json("runners", "jobs")["jobs"]
    assert (first["org_name"], first["job_name"], first["profile"]) == ("acme", "build 32", "linux")


def test_plain_output_and_errors(runners: Runners, old: OldManager) -> None:
    old.add("acme", entry(41))
    shown = runners.run("runners", "import", old.url, "--pattern", f"{PREFIX}:*", "--no-check")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "1 entered")
    nothing = runners.run("runners", "import", old.url, "--pattern", "nothing-like-this", "--no-check")
    assert nothing.stdout.splitlines()[-1] == "0 entries"
    wrong = runners.run("runners", "import", "http://user:hunter@host", "--no-check")
    assert (error_code(wrong), "hunter" in wrong.output) == ("configuration", False)
    assert "Invalid argument URL: use an address such as redis://" in wrong.stderr
    away = runners.run("runners", "import", "redis://127.0.0.1:1/0", "--no-check")
    assert error_code(away) == "store_unavailable"
    runners.section["profiles"] = []
    assert error_code(runners.run("runners", "import", old.url)) == "configuration"


@pytest.mark.parametrize(
    "value", [b"[]", b"{", b'{"job_id": true}', b'{"job_id": 5, "repo_full_name": "acme"}', b"\xff", b'{"a": "\xff"}']
)
def test_invalid_entries_are_named(value: bytes) -> None:
    found = read_entry("pending:acme", value)
    assert found.job is None
    assert found.problem
