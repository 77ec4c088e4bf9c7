"""What operators type: options behind the command, short ids, times, settings of queues, the audit log."""

from __future__ import annotations

import json
import re
import time

import pytest
from tests.cli.support import Shop, error_code, shop

from jobyard.cli.global_options import hoist
from jobyard.cli.root import RootCommand, cli
from jobyard.domain.instant import instant

__all__ = ["shop"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("up --store sqlite:///a.db --port 1", "--store sqlite:///a.db up --port 1"),
        ("jobs list --store=sqlite:///a.db --limit 3", "--store=sqlite:///a.db jobs list --limit 3"),
        ("--store a queues --store b", "--store a --store b queues"),
        ("jobs cancel x --reason --store", "jobs cancel x --reason --store"),  # the value of --reason
        ("run a.py -- --store x", "run a.py -- --store x"),  # of the program
        ("run a.py x --store y", "run a.py x --store y"),  # of the program, too
        ("run --time 1 --store x a.py", "--store x run --time 1 a.py"),
        ("jobs --app m:y --log-level debug list", "--app m:y --log-level debug jobs list"),
        ("queues --help", "queues --help"),
        ("quues --store x", "--store x quues"),
    ],
)
def test_options_of_the_root_are_accepted_behind_the_command(words: str, expected: str) -> None:
    assert isinstance(cli, RootCommand)
    context = cli.make_context("jobyard", ["--help"], resilient_parsing=True)
    assert hoist(cli, context, words.split()) == expected.split()


def test_a_store_behind_the_command_is_the_one_that_is_used(shop: Shop) -> None:
    shop.run("enqueue", "send", "to=a", "--store", "sqlite:///other.db")
    assert [job["kind"] for job in shop.json("jobs", "list", "--store", "sqlite:///other.db")["jobs"]] == ["send"]
    assert error_code(shop.run("jobs", "list")) == "configuration"  # the store of the app was not created
    assert "not both" in shop.run("queues", "--store", "sqlite:///other.db", "--server", "http://x").stderr


def test_a_generic_name_does_not_override_the_store_that_the_app_names(shop: Shop) -> None:
    generic = {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": "9"}
    assert shop.run("enqueue", "send", "to=a", **generic).exit_code == 0
    assert shop.run("jobs", "list", **generic).stdout.count("send") == 1
    module = shop.folder / f"{shop.module}.py"
    module.write_text(module.read_text().replace('Jobyard("sqlite:///shop.db")', "Jobyard()"))
    nameless = module.rename(shop.folder / f"{shop.module}_nameless.py").stem
    assert error_code(shop.run("jobs", "list", JOBYARD_APP=f"{nameless}:yard", **generic)) == "store_unavailable"


def test_the_file_overrides_generic_names_of_flags(shop: Shop) -> None:
    (shop.folder / "jobyard.yaml").write_text("worker: {concurrency: 3}\n")
    shop.enqueue("send", {"to": "a"})

    def concurrency(**environment: str) -> str:
        said = shop.run("worker", "--until-empty", **environment).stderr
        return next(line for line in said.splitlines() if " started: " in line)

    assert "concurrency 3, store sqlite:///" in concurrency(QUEUE_CONCURRENCY="4")
    (shop.folder / "jobyard.yaml").unlink()
    assert "concurrency 4," in concurrency(QUEUE_CONCURRENCY="4")


def test_jobs_are_named_by_the_beginning_of_their_id(shop: Shop) -> None:
    first, other = shop.enqueue("send", {"to": "a"}), shop.enqueue("fail")
    short = next(first[:size] for size in range(8, 37) if not other.startswith(first[:size]))
    assert shop.json("jobs", "show", short.upper())["id"] == first
    assert shop.json("explain", f"{short}")["job_id"] == first
    assert shop.json("jobs", "cancel", short)["changed"] == [first]
    several = shop.run("jobs", "show", first[:8])
    assert error_code(several) == "bad_input"
    assert "more than one id begins so" in several.stderr
    assert "8 characters" in shop.run("jobs", "show", first[:4]).stderr
    assert error_code(shop.run("jobs", "show", "00000000-0000")) == "job_not_found"
    missing = shop.run("jobs", "cancel", other[:-1], "00000000-0000", "--json")
    assert json.loads(missing.stdout) == {"changed": [other], "unchanged": [], "missing": ["00000000-0000"]}


def test_lists_show_relative_times_or_absolute_ones(shop: Shop) -> None:
    shop.enqueue("fail")
    shop.work_off()
    for words in (("jobs", "list"), ("dead",), ("dead", "list"), ("tokens", "list")):
        shop.run("tokens", "create", "ci", "--role", "viewer")
        assert re.search(r"\tjust now|\t\d+ seconds? ago", shop.run(*words).stdout), words
        assert re.search(r"\t20\d\d-\d\d-\d\dT[\d:.]+Z", shop.run(*words, "--absolute").stdout), words


def test_a_job_is_enqueued_for_a_time(shop: Shop) -> None:
    job_id = shop.run("enqueue", "send", "to=a", "--at", "2100-12-24T18:00:00+01:00").stdout.strip()
    job = shop.json("jobs", "show", job_id)
    assert instant(job["run_at"]) == instant("2100-12-24T17:00:00Z")
    assert shop.run("enqueue", "send", "to=a", "--at", "tomorrow").exit_code == 2
    both = shop.run("enqueue", "send", "to=a", "--at", "2100-12-24", "--delay", "3")
    assert (both.exit_code, both.stderr.count("Pass --delay or --at")) == (2, 1)
    without_zone = shop.run("enqueue", "send", "to=a", "--at", "2100-12-24T18:00:00")
    note = "--at 2100-12-24T18:00:00 has no time zone: it is read as UTC, 2100-12-24T18:00:00.000Z.\n"
    assert without_zone.stderr == note
    for words in ("in 10 minutes", "+10m"):
        asked_at = time.time()
        soon = shop.json("jobs", "show", shop.run("enqueue", "send", "to=a", "--at", words).stdout.strip())
        assert 595 < instant(soon["run_at"]) / 1000 - asked_at < 660


def test_text_that_looks_like_a_number_can_be_passed(shop: Shop) -> None:
    result = shop.run("enqueue", "send", "to=1")
    assert error_code(result) == "bad_input"
    assert """write to='"1"'.""" in result.stderr
    assert shop.run("enqueue", "send", 'to="1"').exit_code == 0
    assert "for text" not in shop.run("enqueue", "send", "too=1").stderr


def test_settings_of_a_queue_are_changed_and_reset(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    words = ("queues", "set", "mail", "--max-running", "3", "--max-per-group", "none", "--keep-failed", "7")
    assert shop.run(*words).stdout == "Queue mail has max_running 3, max_per_group none, keep_failed 7.\n"
    settings = shop.json("queues", "set", "mail", "--keep-failed-seconds", "60")["settings"]
    expected = {"max_running": 3, "max_per_group": None, "keep_failed": 7, "keep_failed_seconds": 60.0}
    assert settings.items() >= expected.items()
    assert shop.json("limits", "show", "mail")["settings_origin"] == "operator"
    shop.run("limits", "reset", "mail")
    assert shop.json("limits", "show", "mail")["max_running"] == 10


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("mail",), 2),
        (("mail", "--max-running", "many"), 2),
        (("mail", "--max-running", "-1"), 1),
        (("mial", "--max-running", "1"), 1),
    ],
)
def test_invalid_settings_of_a_queue_are_refused(shop: Shop, words: tuple[str, ...], code: int) -> None:
    shop.enqueue("send", {"to": "a"})
    assert shop.run("queues", "set", *words).exit_code == code
    assert shop.json("limits", "show", "mail")["settings_origin"] == "declared"


def test_a_queue_without_jobs_is_created_on_request(shop: Shop) -> None:
    assert shop.json("queues", "set", "new", "--max-running", "1", "--create")["settings"]["max_running"] == 1


def test_the_audit_log_is_shown_newest_first_and_filtered(shop: Shop) -> None:
    job_id = shop.enqueue("send", {"to": "a"})
    shop.run("queues", "pause", "mail")
    shop.run("limits", "set", "mail", "team-a", "3")
    shop.run("jobs", "cancel", job_id, "--reason", "no")

    def actions(*words: str) -> list[str]:
        return [entry["action"] for entry in shop.json("audit-log", *words)["entries"]]

    everything = actions()
    assert everything == ["job.cancel", "group.limit", "queue.pause"]
    assert actions("--target", job_id) == ["job.cancel"]
    assert actions("--limit", "1") == everything[:1]
    assert actions("--action", "queue.") == ["queue.pause"]
    assert actions("--target", "mail") == ["group.limit", "queue.pause"]
    assert actions("--since", "2100-01-01") == []
    assert actions("--until", "2100-01-01") == everything
    [entry] = shop.json("audit-log", "--action", "queue.pause")["entries"]
    assert actions("--by", entry["name"]) == everything
    assert actions("--by", "another") == []
    text = shop.run("audit-log").stdout.splitlines()
    assert text[0].split("\t") == ["when", "by", "role", "action", "target", "details"]
    assert "2026" not in text[1].partition("\t")[0]
    assert "T" in shop.run("audit-log", "--absolute").stdout.splitlines()[1].partition("\t")[0]


def test_the_settings_that_can_be_set_are_all_settings(shop: Shop) -> None:
    from jobyard.cli.commands.queues import SETTINGS  # noqa: PLC0415
    from jobyard.domain.job import QueueSettings  # noqa: PLC0415

    assert set(SETTINGS) == set(QueueSettings.__struct_fields__)


def test_up_without_an_application_says_what_to_set(shop: Shop) -> None:
    refused = shop.run("up", JOBYARD_APP="")
    assert error_code(refused) == "configuration"
    assert "set JOBYARD_APP. Without one, `jobyard server` serves the API" in refused.stderr
