"""The configuration: file below environment below flags, and what is wrong with it in clear words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.support import Shop, shop
from tests.house.make_docs import configuration
from tests.support import python

from jobyard.config import Configuration, load
from jobyard.config.keys import QUEUE, SCHEDULE, SECTIONS
from jobyard.config.settings import SETTINGS
from jobyard.domain.job import QueueSettings
from jobyard.errors import ConfigurationError
from jobyard.operations.schedule_options import BY_FIELD

__all__ = ["shop"]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes jobyard.yaml into the current folder."""
    monkeypatch.chdir(tmp_path)

    def text(content: str) -> Path:
        path = tmp_path / "jobyard.yaml"
        path.write_text(content, "utf-8")
        return path

    return text


Write = Callable[[str], Path]


def refusals(environment: dict[str, str] | None = None, **flags: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(environment or {}, **flags)
    return str(caught.value).splitlines()


def test_every_key_has_its_place_its_check_and_its_setting() -> None:
    fields = {field.name: field for field in msgspec.structs.fields(Configuration)}
    assert list(fields) == [
        "store",
        "queues",
        "schedules",
        "platforms",
        "worker",
        "server",
        "scheduler",
        "sandbox",
        "runners",
        "workflows",
        "log",
        "alerts",
        "tracing",
    ]
    for section, keys in SECTIONS.items():
        extra = {"queues"} if section == "store" else set()
        assert set(keys) | extra == set(type(fields[section].default).__struct_fields__)
    assert set(QUEUE) == {*QueueSettings.__struct_fields__, "max_attempts"}
    assert set(SCHEDULE) == set(BY_FIELD) - {"name"}
    documented = {setting.key for setting in SETTINGS if setting.key and not setting.key.startswith("queues.")}
    assert documented == {f"{section}.{word}" for section, keys in SECTIONS.items() for word in keys} | {
        "store.queues",
        "platforms",
    }


def test_documented_defaults_are_the_real_ones() -> None:
    defaults = msgspec.to_builtins(Configuration())
    for setting in SETTINGS:
        section, _, word = setting.key.partition(".")
        if word and section != "queues" and setting.key not in ("log.level", "store.queues"):
            value = defaults[section][word]
            shown = (
                str(value).lower() if isinstance(value, bool) else f"{value:g}" if value.__class__ is float else value
            )
            expected = "" if value in (None, "", (), [], {}) else str(shown)
            assert (setting.key, setting.default) == (setting.key, expected)


def test_without_a_file_and_without_yaml_all_is_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert load({}).configuration == Configuration()


def test_a_file_without_yaml_says_what_to_install(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    write("worker: {concurrency: 3}")
    monkeypatch.setitem(sys.modules, "yaml", None)
    [refusal] = refusals()
    assert "pip install 'jobyard[server]'" in refusal


def test_the_file_in_the_documents_is_read_whole(write: Write) -> None:
    write(configuration().split("```yaml\n")[1].split("```")[0])
    loaded = load({}).configuration
    assert loaded.store.queues == {"mail": "redis://mail-redis:6379/0"}
    assert loaded.queues["*"] == {"keep_completed": 1000}
    assert set(loaded.queues["test-execution"]) == set(QUEUE)
    assert (loaded.worker.queues, loaded.worker.concurrency) == (("test-execution", "mail"), 8)
    assert (loaded.log.level, loaded.log.format) == ("info,store=debug", "json")
    assert loaded.schedules["nightly"]["payload"] == {"days": 1}


def test_flags_win_over_variables_and_variables_over_the_file(write: Write) -> None:
    write("worker: {concurrency: 3, lease_seconds: 20, app: file:yard}\nlog: {level: error}\n")
    environment = {"QUEUE_CONCURRENCY": "4", "JOBYARD_WORKER__CONCURRENCY": "5", "JOBYARD_WORKER__APP": "long:yard"}
    found = load(environment, flags={"worker.app": ("--app", "flag:yard")})
    assert found.configuration.worker.concurrency == 5
    assert found.configuration.worker.lease_seconds == 20.0
    assert found.configuration.worker.app == "flag:yard"
    origins = {".".join(path): given.origin for path, given in found.given.items()}
    assert origins == {
        "worker.concurrency": "JOBYARD_WORKER__CONCURRENCY",
        "worker.lease_seconds": "jobyard.yaml:1",
        "worker.app": "--app",
        "log.level": "jobyard.yaml:2",
    }


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        ("wroker: {}", 1, ("wroker", 'Did you mean "worker"?')),
        ("worker:\n  concurency: 3", 2, ("concurency", 'Did you mean "concurrency"?')),
        ("queues:\n  mail:\n    max_runing: 1", 3, ("max_runing", 'Did you mean "max_running"?')),
        ("worker:\n  concurrency: many", 2, ("worker.concurrency", "1 to 10000")),
        ("worker:\n\n  queues: mail", 3, ("worker.queues", "'mail'")),
        ("log: {level: loud}", 1, ("debug", "loud")),
        ("log: {format: xml}", 1, ("log.format", "'xml'")),
        ("tracing: {enabled: 1}", 1, ("tracing.enabled",)),
        ("server: {port: 70000}", 1, ("server.port", "0 to 65535")),
        ("server: {requests_per_second: 0}", 1, ("server.requests_per_second",)),
        ("worker: 3", 1, ("worker",)),
        ("- worker", 1, ("The file",)),
        ("worker:\n  app: a:b\n  app: c:d", 3, ("worker.app", "twice")),
        ("worker: [", 1, ("YAML",)),
        ("worker: {a: !!python/name:os.system }", 1, ("key a in worker",)),
        ("worker: {app: !!python/name:os.system }", 1, ("YAML",)),
        ("worker: {app: 2026-99-99}", 1, ("worker.app", "quotation marks")),
        ("schedules: {a: {expresion: x}}", 1, ("expresion", 'Did you mean "expression"?')),
        ("schedules:\n  a: {expression: '@daily'}", 2, ("schedules.a", "kind")),
        ("schedules:\n  a:\n    expression: '61 * * * *'\n    kind: b", 3, ("schedules.a", '"61 * * * *"')),
        ("schedules: {a: {expression: x, kind: b, payload: [1]}}", 1, ("schedules.a.payload",)),
        ("schedules:\n  a:", 2, ("schedules.a", "expression")),
        ("schedules: {a: {}}", 1, ("schedules.a", "expression")),
        ("schedules: {a: '@daily'}", 1, ("schedules.a", "expression")),
        ("schedules: {a: {start_at: soon}}", 1, ("schedules.a.start_at", "2026-11-16T09:30:00Z")),
        ("schedules: {a: {overlap: never}}", 1, ("schedules.a.overlap", "'never'")),
        ("schedules: {a: {expression: * * * * *}}", 1, ("quotation marks",)),
        ("schedules: {a: {expression: @daily}}", 1, ("quotation marks",)),
        ("scheduler: {shortest_interval_seconds: 0}", 1, ("scheduler.shortest_interval_seconds",)),
        ("store: {url: 5}", 1, ("store.url",)),
        ("runners: {max_total: abc}", 1, ("runners.max_total must be a whole number", "not 'abc'.")),
        (
            "runners: {clusters: {a: {backend: proces}}}",
            1,
            ("runners.clusters.a.backend must be kubernetes or process, not 'proces'. Did you mean \"process\"?",),
        ),
        (
            "runners:\n  profiles: [{name: a, labels: [b], max_running: abc}]",
            2,
            ("runners.profiles[0].max_running: Expected an integer or null, got 'abc'.",),
        ),
        (
            "runners: {profiles: [{name: [a], labels: [b]}]}",
            1,
            ("runners.profiles[0].name: Expected a string, got an array.",),
        ),
    ],
)
def test_a_problem_in_the_file_is_reported_with_its_line_and_key(
    write: Write, text: str, line: int, named: tuple[str, ...]
) -> None:
    write(text)
    [refusal] = refusals()
    assert refusal.startswith(f"jobyard.yaml:{line}")
    for each in named:
        assert each in refusal


def test_all_problems_are_reported_at_once(write: Write) -> None:
    write("wroker: {}\nworker: {concurrency: 0}")
    problems = refusals(
        {"JOBYARD_SERVER__PROT": "1", "PORT": "http", "JOBYARD_SERVER": "other", "JOBYARD_LOG__LEVEL": ""}
    )
    assert [each.partition(": ")[0] for each in problems] == [
        "jobyard.yaml:1", "JOBYARD_SERVER__PROT", "PORT", "jobyard.yaml:2",
    ]  # fmt: skip
    assert 'Did you mean "port"?' in problems[1]


def test_a_file_that_is_named_must_be_there(write: Write) -> None:
    [refusal] = refusals(file="other.yaml")
    assert "other.yaml" in refusal


@pytest.mark.parametrize("text", ["", "# nothing\n", "worker:\n", "queues: {mail: }"])
def test_a_file_may_say_nothing(write: Write, text: str) -> None:
    write(text)
    assert load({}).configuration == Configuration()


def test_queues_from_the_environment(write: Write) -> None:
    write("queues: {test-execution: {max_running: 3}}")
    configuration = load(
        {
            "JOBYARD_QUEUES__TEST_EXECUTION__MAX_RUNNING": "7",
            "JOBYARD_QUEUES__MAIL__KEEP_FAILED": "false",
            "JOBYARD_QUEUES__ALL__KEEP_FAILED_SECONDS": "1.5",
            "QUEUE_REMOVE_ON_COMPLETE": "true",
            "QUEUE_REMOVE_ON_FAIL": "20",
            "QUEUE_MAX_ATTEMPTS": "9",
            "JOBYARD_STORE__QUEUES": '{"mail": "redis://mail/0"}',
            "JOBYARD_WORKER__QUEUES": "mail, slow",
        }
    ).configuration
    assert configuration.queues == {
        "test-execution": {"max_running": 7},
        "mail": {"keep_failed": 1_000_000_000},
        "*": {"keep_failed_seconds": 1.5, "keep_completed": 0, "keep_failed": 20, "max_attempts": 9},
    }
    assert configuration.store.queues == {"mail": "redis://mail/0"}
    assert configuration.worker.queues == ("mail", "slow")


def test_schedules_from_the_file_and_the_environment(write: Write) -> None:
    write("schedules: {week-end: {expression: '@weekly', kind: report, start_at: 2030-01-01}}")
    configuration = load(
        {
            "JOBYARD_SCHEDULES__WEEK_END__PAYLOAD": '{"days": 7}',
            "JOBYARD_SCHEDULES__NIGHTLY__EXPRESSION": "0 2 * * *",
            "JOBYARD_SCHEDULES__NIGHTLY__KIND": "report",
            "JOBYARD_SCHEDULES__NIGHTLY__MAX_RETRY": "1",
            "JOBYARD_SCHEDULES__ALL__EXPRESSION": "@daily",
            "JOBYARD_SCHEDULES__ALL__KIND": "report",
        }
    ).configuration.schedules
    assert configuration == {
        "week-end": {
            "expression": "@weekly", "kind": "report", "start_at": "2030-01-01T00:00:00.000Z", "payload": {"days": 7},
        },
        "nightly": {"expression": "0 2 * * *", "kind": "report", "max_retry": 1},
        "all": {"expression": "@daily", "kind": "report"},
    }  # fmt: skip


def test_the_names_of_redis_make_a_url_if_nothing_else_names_a_store(write: Write) -> None:
    redis = {"REDIS_HOST": "cache", "REDIS_DB": "2"}
    found = load(redis)
    assert found.configuration.store.url == "redis://cache:6379/2"
    assert found.given["store", "url"].origin == "REDIS_HOST, REDIS_DB"
    assert load({"REDIS_PORT": "tcp://10.0.0.1:6379"}).configuration == Configuration()
    assert "REDIS_PORT" in refusals({**redis, "REDIS_PORT": "tcp://10.0.0.1:6379"})[0]
    write("store: {url: 'sqlite:///file.db'}")
    assert load(redis).configuration.store.url == "sqlite:///file.db"
    environment = {**redis, "REDIS_PORT": "tcp://10.0.0.1:6379", "JOBYARD_STORE": "sqlite:///environment.db"}
    assert load(environment).configuration.store.url == "sqlite:///environment.db"
    assert load(redis, flags={"store.url": ("--store", "memory://")}).configuration.store.url == "memory://"


def test_generic_names_have_less_weight_than_anything_said_on_purpose(write: Write) -> None:
    generic = {"QUEUE_CONCURRENCY": "3", "PORT": "81", "WORKER_PLATFORMS": "", "LOG_LEVEL": "debug"}
    found = load(generic).configuration
    assert (found.worker.concurrency, found.server.port, found.log.level) == (3, 81, "debug")
    own = load({**generic, "JOBYARD_WORKER__CONCURRENCY": "4"}).configuration
    assert (own.worker.concurrency, own.server.port) == (4, 81)
    write("worker: {concurrency: 5}\nserver: {port: 82}\nlog: {level: error}")
    found = load(generic).configuration
    assert (found.worker.concurrency, found.server.port, found.log.level) == (5, 82, "error")
    assert load({**generic, "JOBYARD_SERVER__PORT": "83"}).configuration.server.port == 83
    assert load(generic, flags={"log.level": ("--log-level", "info")}).configuration.log.level == "info"


def test_secrets_come_from_files_and_nothing_else_does(write: Write, tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://:hidden@cache/0\n")
    assert load({"JOBYARD_STORE_FILE": str(secret)}).configuration.store.url == "redis://:hidden@cache/0"
    assert load({"JOBYARD_STORE__URL_FILE": str(secret)}).configuration.store.url == "redis://:hidden@cache/0"
    assert "worker.app is not a secret" in refusals({"JOBYARD_WORKER__APP_FILE": str(secret)})[0]
    [gone] = refusals({"JOBYARD_STORE_FILE": "missing"})
    assert "Cannot read missing" in gone
    assert "hidden" not in "".join(refusals({"JOBYARD_STORE": "hidden"}))


def test_show_says_where_each_value_came_from_and_no_secret(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("store: {url: 'redis://:hidden@cache/0'}\nqueues: {mail: {max_running: 2}}\n")
    shown = {each["key"]: (each["value"], each["origin"]) for each in shop.json("config", "show", "--origin")["values"]}
    assert shown["store.url"] == ("redis://cache/0", "jobyard.yaml:1")
    assert shown["queues.mail.max_running"] == (2, "jobyard.yaml:2")
    assert shown["worker.app"] == (shop.app, "JOBYARD_APP")
    assert shown["worker.concurrency"] == (2, "default")
    assert shown["log.level"] == ("warning", "default")
    assert shown["queues.*.keep_completed"] == (100, "default")
    plain = shop.run("--log-level", "error", "config", "show", "--origin", QUEUE_CONCURRENCY="7").stdout.splitlines()
    assert "worker.concurrency\t7\tQUEUE_CONCURRENCY" in plain
    assert "log.level\terror\t--log-level" in plain
    assert "hidden" not in "\n".join(plain)
    assert "origin" not in shop.json("config", "show")["values"][0]


def test_check_reports_what_is_wrong_and_other_commands_refuse(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("worker: {concurency: 3}\nserver: {prot: 1}\n")
    result = shop.run("check", "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["findings"]
    assert [(each["level"], each["what"]) for each in findings] == [("fail", "configuration")] * 2
    refused = shop.run("queues")
    assert refused.exit_code == 1
    assert 'Error: jobyard.yaml:1: Unknown key concurency in worker. Did you mean "concurrency"?' in refused.stderr


def test_check_goes_without_an_app(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("store: {url: 'sqlite:///own.db'}\nqueues: {mail: {max_running: 4}}\n")
    result = shop.run("check", JOBYARD_APP="")
    assert result.exit_code == 0, result.output
    assert "ok   configuration: jobyard.yaml; all values are valid" in result.stdout
    assert "ok   queue: mail" in result.stdout


def test_check_reads_the_definitions_of_languages(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("store: {url: 'sqlite:///own.db'}\nsandbox: {languages: ours.yaml}\n")
    for text, level, says in (
        ("bash: {rum: []}", "fail", "ours.yaml: bash: Object contains unknown field `rum`"),
        ("ours: {version: [x], file: a, self_test: {source: a, stdout: b}}", "ok", "ours.yaml defines ours"),
    ):
        Path("ours.yaml").write_text(text)
        result = shop.run("check", "--json", JOBYARD_APP="")
        [finding] = [each for each in json.loads(result.stdout)["findings"] if each["what"] == "languages"]
        assert (finding["level"], result.exit_code) == (level, int(level == "fail"))
        assert says in finding["says"]


def test_check_names_the_queue_whose_store_is_wrong(shop: Shop) -> None:
    stores = "{mail: 'sqlit:///mail.db', other: 'sqlite:///nowhere/other.db', good: 'sqlite:///good.db'}"
    Path("jobyard.yaml").write_text(f"store: {{url: 'sqlite:///own.db', queues: {stores}}}\n")
    result = shop.run("check", "--json")
    assert result.exit_code == 1
    findings = {each["says"].partition(":")[0]: each for each in json.loads(result.stdout)["findings"]}
    assert {what: each["level"] for what, each in findings.items() if what.startswith("of queue")} == {
        **{"of queue mail": "fail", "of queue other": "fail", "of queue good": "ok"}
    }
    assert 'Did you mean "sqlite"?' in findings["of queue mail"]["says"]
    assert findings["of queue other"]["cure"] == "fix store.queues.other"
    assert "Error: Invalid store of queue mail (store.queues): The store URL sqlit:" in shop.run("queues").stderr


def test_a_command_takes_its_defaults_from_the_file(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("worker: {queues: [other], concurrency: 3}\n")
    mail, other = shop.enqueue("send", {"to": "a"}), shop.enqueue("send", {"to": "b"}, queue="other")
    assert shop.run("worker", "--until-empty").exit_code == 0
    assert shop.json("jobs", "show", mail)["state"] == "PENDING"
    assert shop.json("jobs", "show", other)["state"] == "COMPLETED"
    assert shop.run("worker", "--until-empty", "--queue", "mail").exit_code == 0
    assert shop.json("jobs", "show", mail)["state"] == "COMPLETED"


def test_the_configuration_of_a_queue_wins_over_the_program(shop: Shop) -> None:
    Path("jobyard.yaml").write_text(
        "queues:\n  '*': {keep_completed: 7, max_attempts: 8, max_per_group: 9}\n  mail: {max_running: 4}\n"
    )
    job = shop.run("enqueue", "send", "to=a").stdout.strip()
    assert shop.json("jobs", "show", job)["max_attempts"] == 8
    job = shop.run("enqueue", "fail").stdout.strip()
    assert shop.json("jobs", "show", job)["max_attempts"] == 1  # its handler says so
    settings = {each["name"]: each["settings"] for each in shop.json("queues")["queues"]}
    mail = settings["mail"]  # the program says max_running=10, max_per_group=2
    assert (mail["max_running"], mail["max_per_group"], mail["keep_completed"]) == (4, 2, 7)
    assert (settings["slow"]["max_per_group"], settings["slow"]["keep_completed"]) == (9, 7)


def test_the_command_line_works_without_the_servers_packages(shop: Shop) -> None:
    """They are an extra, which is needed only for a server."""
    names = ("yaml", "starlette", "uvicorn", "httptools", "pythonjsonlogger", "httpx2")
    hidden = f"import sys; sys.modules.update(dict.fromkeys({names}))"
    run = f"{hidden}; from jobyard.cli import main; sys.argv = ['jobyard', *sys.argv[1:]]; main()"
    shop.enqueue("send", {"to": "a"})
    words = ("-W", "error", "-c", run, "--app", shop.app)
    assert python(*words, "worker", "--until-empty", cwd=shop.folder).returncode == 0
    refused = python(*words, "server", cwd=shop.folder)
    assert refused.returncode == 1
    assert "pip install 'jobyard[server]'" in refused.stderr
    refused = python(*words, "--log-format", "json", "queues", cwd=shop.folder)
    assert "pip install 'jobyard[server]'" in refused.stderr
    Path("program.py").write_text("print(1)")
    for command in (("run", "program.py"), ("sandbox", "selftest")):
        refused = python(*words, *command, cwd=shop.folder)
        assert (refused.stderr.count("\n"), "pip install 'jobyard[sandbox]'" in refused.stderr) == (1, True)
    assert "There is jobyard jobs retry." in python(*words, "retry", cwd=shop.folder).stderr


def test_queues_live_in_the_stores_that_they_were_given(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("store:\n  queues: {mail: 'sqlite:///mail.db', post: 'sqlite:///mail.db'}\n")
    mail = shop.run("enqueue", "send", "to=a").stdout.strip()
    post = shop.run("enqueue", "send", "to=b", "--queue", "post").stdout.strip()
    other = shop.run("enqueue", "send", "to=c", "--queue", "other").stdout.strip()
    shop.work_off()
    jobs = {job["id"]: (job["queue"], job["state"]) for job in shop.json("jobs", "list")["jobs"]}
    assert jobs == {mail: ("mail", "COMPLETED"), post: ("post", "COMPLETED"), other: ("other", "COMPLETED")}
    assert sorted(queue["name"] for queue in shop.json("queues")["queues"]) == ["mail", "other", "post"]
    Path("jobyard.yaml").unlink()
    assert [job["id"] for job in shop.json("--store", "sqlite:///shop.db", "jobs", "list")["jobs"]] == [other]
    there = shop.json("--store", "sqlite:///mail.db", "jobs", "list")["jobs"]
    assert {job["id"] for job in there} == {mail, post}
