"""`jobyard --server` has the same output and the same effects as `jobyard` on the store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.support import PATIENCE_SECONDS, Shop, error_code, shop
from tests.support import eventually

from jobyard import Jobyard
from jobyard.domain.job import Job, State
from jobyard.ports.admin_store import Filter

__all__ = ["shop"]

# What may differ between two calls: ages and cursors.
AGE = re.compile(
    r"just now|\d+ (second|minute)s? ago|"
    r"(?<![\w-])(\d+[dhm])+(\d+s)?(?![\w-])|\b\d+(\.\d+)?(ms|s| min| h)\b|(?<=elapsed_seconds\": )[\d.]+| +(?=\bAGE)"
)
CURSOR = re.compile(r"(?<=cursor )\S+|(?<=cursor\": )\"\S+\"")
SEEN = re.compile(r"(?<=seen_at\": )\"\S+\"")
# A heartbeat may come between the two commands.
USED = re.compile(r'"(memory_bytes|cpu_seconds|cpu_percent)": [\d.]+')


MAILING = {
    "id": "mailing",
    "params": {"to": {"type": "string"}},
    "steps": [{"id": "send", "kind": "send", "input": {"to": "${params.to}"}}],
    "output": "${steps.send.output.to}",
}


class RemoteShop:
    """The store of the shop behind a server process."""

    def __init__(self, shop: Shop, url: str, token: str) -> None:
        self.shop = shop
        self.url = url
        self.token = token

    def run(self, *words: str, **environment: str) -> Result:
        given = {"JOBYARD_APP": "", "JOBYARD_TOKEN": self.token} | environment
        return self.shop.run("--server", self.url, *words, **given)


@pytest.fixture
def remote(shop: Shop) -> Iterator[RemoteShop]:
    (shop.folder / "workflows").mkdir()
    (shop.folder / "workflows" / "mailing.json").write_text(json.dumps(MAILING))
    token = shop.json("tokens", "create", "tests", "--role", "admin")["token"]
    with serving(shop, "--json") as url:
        yield RemoteShop(shop, url, token)


@contextmanager
def serving(shop: Shop, *words: str) -> Iterator[str]:
    """The address of a server on the store of the shop."""
    with shop.start("server", "--port", "0", *words) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n") and (line := process.stdout.readline()):
            text += line
        yield json.loads(text)["url"]
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def comparable(result: Result) -> tuple[int, str, str]:
    found = [result.stdout, result.stderr]
    for pattern, mark in ((AGE, "AGE"), (CURSOR, "CURSOR"), (SEEN, "SEEN"), (USED, "USED")):
        found = [pattern.sub(mark, text) for text in found]
    return result.exit_code, re.sub(r" +", " ", found[0]), found[1]


def test_queries_print_the_same_locally_and_remotely(shop: Shop, remote: RemoteShop) -> None:
    shop.run("limits", "set", "mail", "team-a", "5")
    done = shop.enqueue("send", {"to": "ann", "copies": 3}, group="team-a", tags=["x"])
    failed = shop.enqueue("fail")
    shop.work_off()
    waiting = shop.enqueue("send", {"to": "bob"}, group="team-b", priority=3, delay=3600, unique="key")
    for number in range(4):
        shop.enqueue("hang", group=f"team-{number}")
    shop.run("queues", "pause", "slow")
    shop.run("groups", "pause", "mail", "team-b")
    submitted = json.loads(remote.run("enqueue", "send", "to=ann", "--tag", "x", "--json").stdout)["id"]
    queries = [
        ("jobs", "show", submitted),
        ("queues",),
        ("queues", "list"),
        ("groups", "list", "mail"),
        ("groups", "list", "slow", "--limit", "2"),
        ("groups", "list", "slow", "--limit", "2", "--after", "team-1"),
        ("groups", "list", "mial"),
        ("limits", "show", "mail"),
        ("limits", "show", "mail", "team-a"),
        ("jobs", "list"),
        ("jobs", "list", "--limit", "3"),
        ("jobs", "list", "--queue", "mail", "--state", "FAILED", "--state", "COMPLETED"),
        ("jobs", "list", "--tag", "x", "--kind", "send"),
        ("jobs", "list", "--text", "BOB", "--created-after", "2020-01-01"),
        ("jobs", "list", "--created-before", "2020-01-01"),
        ("jobs", "show", done),
        ("jobs", "show", failed),
        ("jobs", "show", waiting),
        ("jobs", "show", "nothing"),
        ("explain", done),
        ("explain", waiting),
        ("explain", "nothing"),
        ("dead", "list"),
        ("dead", "list", "--queue", "nothing"),
        ("running",),
        ("workers",),
        ("tokens", "list"),
    ]
    for words in queries:
        for more in ((), ("--json",)):
            local, remotely = comparable(shop.run(*words, *more)), comparable(remote.run(*words, *more))
            assert local == remotely, words
            is_wrong = "mial" in words or words in (("jobs", "show", "nothing"), ("explain", "nothing"))
            assert local[0] == int(is_wrong), local


def test_a_running_job_and_its_worker_print_the_same(shop: Shop, remote: RemoteShop) -> None:
    job_id = shop.enqueue("hang")
    with shop.start("worker", "--concurrency", "2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        shop.do(its_worker_is_busy)
        for words in (
            ("running",),
            ("workers",),
            ("running", "--json"),
            ("workers", "--json"),
            ("jobs", "show", job_id),
        ):
            assert comparable(shop.run(*words)) == comparable(remote.run(*words)), words
        local, remotely = json.loads(shop.run("top", "--json").stdout), json.loads(remote.run("top", "--json").stdout)
        assert remotely["running"] == local["running"]
        assert remotely["queues"] == local["queues"]
        assert "slow waiting=0" in remote.run("top", "--once").stdout
        [worker] = local["workers"]
        for run in (shop.run, remote.run):
            assert worker["id"] in run("workers", "quiet", worker["id"]).stdout
        assert comparable(shop.run("workers", "stop", "nobody")) == comparable(remote.run("workers", "stop", "nobody"))
        assert remote.run("jobs", "cancel", job_id).exit_code == 0
        assert json.loads(remote.run("workers", "stop", worker["id"], "--json").stdout)["told"] == "stop"
        process.communicate(timeout=PATIENCE_SECONDS)


async def its_worker_is_busy(yard: Jobyard) -> None:
    async def look() -> bool:
        return [worker.running for worker in await yard.store.workers()] == [1]

    await eventually(look, PATIENCE_SECONDS)


def test_changes_are_the_same_locally_and_remotely(shop: Shop, remote: RemoteShop) -> None:
    """Each change is made to one job locally and to an equal job remotely."""
    pairs = [[shop.enqueue("send", {"to": "ann"}, delay=3600) for _ in range(5)] for _ in range(2)]
    changes = [
        ("cancel", "0", "--reason", "enough"),
        ("cancel", "0"),  # not possible any more
        ("retry", "0"),
        ("run-now", "1", "2"),
        ("prioritise", "3", "--priority", "9"),
        ("delete", "4", "1"),
        ("delete", "4", "2", "nothing"),
    ]
    for words in changes:
        for more in ((), ("--json",)) if words[0] == "prioritise" else ((),):
            local, remotely = (
                comparable(run("jobs", *[ids[int(word)] if word in "01234" else word for word in words], *more))
                for run, ids in ((shop.run, pairs[0]), (remote.run, pairs[1]))
            )
            assert [masked(part, pairs[0]) for part in local] == [masked(part, pairs[1]) for part in remotely], words
    assert [states(shop, ids) for ids in pairs] == [[(State.PENDING, 0), (State.PENDING, 9)]] * 2


def masked(part: int | str, ids: list[str]) -> int | str:
    for number, job_id in enumerate(ids):
        part = part.replace(job_id, f"JOB {number}") if isinstance(part, str) else part
    return part


def states(shop: Shop, ids: list[str]) -> list[tuple[State, int]]:
    async def look(yard: Jobyard) -> list[Job]:
        return list((await yard.store.find(Filter(ids=tuple(ids)))).jobs)

    return sorted((job.state, job.priority) for job in shop.do(look))


def test_the_reason_of_a_rejected_retry_is_the_same(shop: Shop, remote: RemoteShop) -> None:
    shop.enqueue("fail", unique="key")
    shop.work_off()
    [dead] = shop.json("dead", "list")["jobs"]
    holder = shop.enqueue("fail", unique="key")
    local, remotely = (
        comparable(shop.run("jobs", "retry", dead["id"])),
        comparable(remote.run("jobs", "retry", dead["id"])),
    )
    assert local == remotely
    assert holder in local[2]


def test_bulk_changes(shop: Shop, remote: RemoteShop) -> None:
    for _ in range(3):
        shop.enqueue("fail")
    shop.work_off()
    assert remote.run("dead", "redrive").exit_code == 2  # not a terminal
    assert json.loads(remote.run("dead", "redrive", "--yes", "--json").stdout)["changed"] == 3
    cancelled = remote.run("jobs", "cancel", "--queue", "mail", "--all-matching", "--yes", "--json")
    assert json.loads(cancelled.stdout) == {"matched": 3, "changed": 3, "unchanged": 0}
    for _ in range(2):
        shop.enqueue("send", {"to": "ann"})
    assert json.loads(remote.run("queues", "drain", "mail", "--yes", "--json").stdout)["changed"] == 2


def test_queues_groups_and_limits(shop: Shop, remote: RemoteShop) -> None:
    shop.enqueue("send", {"to": "ann"}, group="team-a")
    for words in (
        ("queues", "pause", "mail"),
        ("queues", "resume", "mail"),
        ("queues", "pause", "mial"),
        ("groups", "pause", "mail", "team-a"),
        ("groups", "resume", "mail", "team-a"),
        ("limits", "set", "mail", "team-a", "1"),
        ("limits", "set", "mail", "team-a", "-1"),
        ("limits", "remove", "mail", "team-a"),
    ):
        for more in ((), ("--json",)):
            assert comparable(shop.run(*words, *more)) == comparable(remote.run(*words, *more)), words
    remote.run("limits", "set", "mail", "team-a", "0")
    assert "blocked" in shop.run("groups", "list", "mail").stdout


def test_enqueue_through_a_server(shop: Shop, remote: RemoteShop) -> None:
    with shop.start("worker") as process:
        assert json.loads(remote.run("enqueue", "send", "to=ann", "copies=2", "--wait", "20").stdout) == {
            "to": "ann",
            "copies": 2,
        }
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    first = remote.run("enqueue", "send", "to=ann", "--unique", "key", "--delay", "60", "--json")
    response = json.loads(first.stdout)
    assert response["created"] is True
    again = remote.run("enqueue", "send", "to=ann", "--unique", "key")
    assert (again.stdout.strip(), again.stderr != "") == (response["id"], True)
    for words in (("snd", "to=a"), ("send", "whom=a"), ("send", "to=a", "--delay", "-1"), ("send", "{")):
        local, remotely = comparable(shop.run("enqueue", *words)), comparable(remote.run("enqueue", *words))
        assert local == remotely, words
        assert local[0] == 1


def test_tokens_through_a_server(shop: Shop, remote: RemoteShop) -> None:
    made = json.loads(remote.run("tokens", "create", "ci", "--role", "viewer", "--json").stdout)
    assert made["token"].startswith(f"jy_{made['info']['id']}_")
    refused = remote.run("queues", "pause", "mail", JOBYARD_TOKEN=made["token"])
    assert (refused.exit_code, error_code(refused)) == (1, "not_allowed")
    assert remote.run("tokens", "revoke", made["info"]["id"], "--yes").exit_code == 0
    assert made["info"]["id"] not in shop.run("tokens", "list").stdout
    assert remote.run("tokens", "revoke", made["info"]["id"], "--yes").exit_code == 1


@pytest.mark.parametrize(
    "words", [("worker",), ("migrate",), ("doctor",), ("check",), ("bench", "--this-store"), ("server",), ("up",)]
)
def test_commands_that_need_the_store_are_rejected(shop: Shop, words: tuple[str, ...]) -> None:
    for flags, environment in ((("--server", "http://127.0.0.1:9"), {}), ((), {"API_URL": "http://127.0.0.1:9"})):
        result = shop.run(*flags, *words, **({"JOBYARD_APP": ""} | environment))
        assert result.exit_code == 1
        assert error_code(result) == "configuration"
        assert f" {words[0]}`" in result.stderr


def test_precedence_of_server_and_store(shop: Shop, tmp_path: Path) -> None:
    unreachable = "http://127.0.0.1:9"
    job_id = shop.enqueue("send", {"to": "ann"})
    both = shop.run("--server", unreachable, "--store", "sqlite:///shop.db", "queues")
    assert both.exit_code == 2
    assert shop.run("--store", "sqlite:///shop.db", "explain", job_id, JOBYARD_SERVER=unreachable).exit_code == 0
    assert shop.run("explain", job_id, API_URL=unreachable).exit_code == 0  # an app is named, which has a store
    assert shop.run("doctor", JOBYARD_SERVER=unreachable).exit_code == 0  # on the app's store
    bad = shop.run("--server", "localhost", "queues")
    assert (bad.exit_code, error_code(bad)) == (1, "configuration")


def test_an_address_that_is_ignored_is_named_once(shop: Shop) -> None:
    environment = {"API_URL": "http://127.0.0.1:9"}
    shop.enqueue("send", {"to": "ann"})
    by_app = shop.run("running", **environment)
    assert by_app.exit_code == 0
    assert by_app.stderr.count("API_URL is ignored: the store is named by the application of JOBYARD_APP") == 1
    (shop.folder / "jobyard.yaml").write_text("store: {url: sqlite:///shop.db}\n")
    by_file = shop.run("running", JOBYARD_APP="", **environment)
    assert by_file.stderr.startswith("API_URL is ignored: the store is named by jobyard.yaml")
    assert "pass --server or set JOBYARD_SERVER" in by_file.stderr
    assert shop.run("--store", "sqlite:///shop.db", "running", **environment).stderr == ""
    assert shop.run("running").stderr == ""


def test_an_address_with_a_generic_name_is_used_if_nothing_else_names_a_source(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.enqueue("send", {"to": "ann"})
    local = shop.run("running").stdout
    folder = shop.folder / "elsewhere"  # neither a configuration file nor a store
    folder.mkdir()
    with serving(shop, "--insecure", "--json") as url:
        environment = {"JOBYARD_APP": "", "API_URL": url}
        monkeypatch.chdir(folder)
        asked = shop.run("running", **environment)
        assert (asked.exit_code, asked.stdout) == (0, local)
        assert asked.stderr == f"Asking {url}, which API_URL names.\n"
        on_purpose = shop.run("running", "--server", url, **environment)
        assert (on_purpose.stdout, on_purpose.stderr) == (local, "")
        assert list(folder.iterdir()) == []


def test_no_token_is_sent_to_an_address_that_only_a_generic_name_gives(remote: RemoteShop) -> None:
    environment = {"JOBYARD_APP": "", "JOBYARD_TOKEN": remote.token}
    refused = remote.shop.run("queues", API_URL=remote.url, **environment)
    assert (refused.exit_code, error_code(refused)) == (1, "no_token")
    assert "requires a token" in refused.stderr  # not: the token is wrong
    assert f"only API_URL names: pass --server {remote.url}, or set JOBYARD_SERVER" in refused.stderr
    assert remote.shop.run("queues", JOBYARD_SERVER=remote.url, **environment).exit_code == 0
    assert remote.shop.run("queues", "--server", remote.url, API_URL=remote.url, **environment).exit_code == 0


def test_an_unreachable_server_is_reported_in_one_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.cli.session.PATIENCE_SECONDS", 0)
    result = shop.run("--server", "http://127.0.0.1:9", "queues")
    assert (result.exit_code, error_code(result)) == (1, "server_unavailable")
    assert re.fullmatch(r"Error: .*http://127.0.0.1:9.*\n", result.stderr)


def test_workflows(remote: RemoteShop) -> None:
    """The files are those of the server; runs, signals and graphs go through it."""
    assert remote.run("workflows", "list").stdout.splitlines()[1].startswith("mailing\t1\t")
    with remote.shop.start("worker"):
        result = remote.run("workflows", "run", "mailing", "-p", "to=007")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, '"007"'), result.output
    [job] = json.loads(remote.run("jobs", "list", "--json").stdout)["jobs"]
    for words in (("workflows", "show", job["id"]), ("workflows", "show", "mailing"), ("jobs", "show", job["id"])):
        assert comparable(remote.run(*words)) == comparable(remote.shop.run(*words))
    assert remote.run("workflows", "graph", job["id"]).stdout == remote.shop.run("workflows", "graph", job["id"]).stdout
    assert error_code(remote.run("workflows", "run", "mailings")) == "unknown_workflow"
    assert error_code(remote.run("workflows", "run", "mailing", "--no-wait")) == "bad_option"
    assert error_code(remote.run("signal", job["id"], "go")) == "not_possible"
