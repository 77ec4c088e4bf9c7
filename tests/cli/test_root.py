"""Global options, settings, errors and help."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.support import JOBYARD, Shop, error_code, shop
from tests.support import subcommands

from jobyard.cli import cli
from jobyard.config.settings import SETTINGS, Setting, unknown_variables

__all__ = ["shop"]


def every_command(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in subcommands(group).items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


COMMANDS = dict(every_command())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_and_json(shop: Shop, path: tuple[str, ...]) -> None:
    result = shop.run(*path, "--help")
    assert result.exit_code == 0
    assert f"jobyard {path[0]}" in result.output or f" {path[0]}" in result.output
    assert "Example:" in result.output
    command = COMMANDS[path]
    if not isinstance(command, click.Group) or command.invoke_without_command:
        assert "--json" in result.output


@pytest.mark.parametrize("path", [(), ("jobs",), ("queues",), ("groups",), ("limits",), ("dead",)], ids=" ".join)
def test_first_sentences_fit_the_list_of_commands(shop: Shop, path: tuple[str, ...]) -> None:
    assert "..." not in shop.run(*path, "--help").output.split("Commands:")[1]


def test_an_unknown_command_suggests_another(shop: Shop) -> None:
    result = shop.run("quues")
    assert result.exit_code == 2
    assert "queues" in result.stderr


def test_a_store_that_does_not_exist_is_an_error_not_an_empty_store(shop: Shop) -> None:
    result = shop.run("--store", "sqlite:///nowhere.db", "queues")
    assert result.exit_code == 1
    assert error_code(result) == "configuration"
    assert result.stdout == ""
    assert not Path("nowhere.db").exists()


@pytest.mark.parametrize(
    ("url", "code", "hint"),
    [
        ("sqlit:///a.db", "unknown_store", 'Did you mean "sqlite"?'),
        ("sqlite:///", "unknown_store", ""),
        ("sqlite:///missing/a.db", "store_read_only", "missing"),
        ("sqlite:///text.db", "not_a_database", "text.db"),
    ],
)
def test_an_unusable_store_is_reported_in_one_line(shop: Shop, url: str, code: str, hint: str) -> None:
    Path("text.db").write_text("this is a letter, not a database " * 100)
    result = shop.run("--store", url, "enqueue", "send", "to=a")
    assert (result.exit_code, error_code(result)) == (1, code)
    assert result.stderr.startswith("Error: ")
    assert hint in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("app", "hint"),
    [
        ("", "--app"),
        ("nocolon", "module:attribute"),
        ("no_such_module:yard", "no_such_module"),
        ("{module}:app", "Did you mean {module}:yard?"),
        ("{module}:not_a_yard", "int, not Jobyard. Did you mean {module}:yard?"),
        ("broken:yard", "ZeroDivisionError"),
        ("needs_more:yard", "no_such_dependency"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_an_error(shop: Shop, app: str, hint: str) -> None:
    Path("broken.py").write_text("1 / 0")
    Path("needs_more.py").write_text("import no_such_dependency")
    result = shop.run("enqueue", "send", "to=a", JOBYARD_APP=app.format(module=shop.module))
    assert (result.exit_code, error_code(result)) == (1, "configuration")
    assert result.stderr.startswith("Error: ")
    assert hint.format(module=shop.module) in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("wroker",), "worker"),
        (("dead", "retry"), "redrive"),
        (("jobs", "redrive"), "retry"),
        (("queues", "puase"), "pause"),
        (("tokens", "add"), "create"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(shop: Shop, words: tuple[str, ...], hint: str) -> None:
    result = shop.run(*words)
    assert (result.exit_code, f'Did you mean "{hint}"?' in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("jobs", "list", "--quue", "mail"), 'Did you mean "--queue"?'),
        (("jobs", "--stoer", "sqlite:///a.db"), 'Did you mean "--store"?'),  # an option of the root
        (("jobs", "--state", "RUNNING"), "jobs list` has it."),
        (("cron", "add", "n", "* * * * *", "send", "--timezone", "UTC"), 'Did you mean "--tz"?'),
        (("jobs", "list", "--since", "x"), 'No such option "--since".\n'),
        (("queues", "--xyzzy"), 'No such option "--xyzzy".\n'),
        (("--stoer", "x", "jobs"), 'Did you mean "--store"?'),
    ],
)
def test_an_unknown_option_gets_a_suggestion(shop: Shop, words: tuple[str, ...], hint: str) -> None:
    result = shop.run(*words)
    assert (result.exit_code, hint in result.stderr) == (2, True), result.stderr


def test_a_configuration_file_that_does_not_exist(shop: Shop) -> None:
    result = shop.run("--config", "absent.yaml", "queues")
    assert (result.exit_code, error_code(result), "Check --config" in result.stderr) == (1, "configuration", True)


def test_a_folder_in_place_of_the_configuration_file_is_an_error(shop: Shop) -> None:
    Path("jobyard.yaml").mkdir()
    result = shop.run("queues")
    assert (result.exit_code, error_code(result), "it is a folder" in result.stderr) == (1, "configuration", True)


def test_the_apps_own_store_is_used_unless_one_is_given(shop: Shop) -> None:
    job_id = shop.run("enqueue", "send", "to=a").stdout.strip()
    other_id = shop.run("--store", "sqlite:///other.db", "enqueue", "send", "to=a").stdout.strip()
    assert [job["id"] for job in shop.json("jobs", "list")["jobs"]] == [job_id]
    assert [job["id"] for job in shop.json("--store", "sqlite:///other.db", "jobs", "list")["jobs"]] == [other_id]
    by_variable = shop.run("jobs", "list", JOBYARD_STORE="sqlite:///other.db")
    assert other_id in by_variable.stdout


def test_an_unknown_variable_is_a_warning(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    result = shop.run("queues", JOBYARD_STROE="x")
    assert result.exit_code == 0
    assert "Did you mean JOBYARD_STORE?" in result.stderr


def test_settings_are_unique_and_documented() -> None:
    assert len({setting.variable for setting in SETTINGS}) == len(SETTINGS)
    assert all(setting.doc.endswith(".") for setting in SETTINGS)
    assert unknown_variables({setting.variable: "x" for setting in SETTINGS}) == []
    assert unknown_variables({"JOBYARD_X": "1"}, [Setting(variable="JOBYARD_X", doc="x")]) == []


def test_every_flag_of_the_settings_exists_and_reads_its_variable() -> None:
    options = {
        (option, parameter.envvar)
        for command in (cli, *COMMANDS.values())
        for parameter in command.params
        for option in parameter.opts
        if parameter.envvar
    }
    assert options == {(setting.flag, setting.variable) for setting in SETTINGS if setting.flag}


@pytest.mark.parametrize("level", ["WARN", "Info", "error,store=debug", "worker=critical", ""])
def test_valid_log_levels(shop: Shop, level: str) -> None:
    shop.enqueue("fail")
    assert shop.run("queues", LOG_LEVEL=level).exit_code == 0


@pytest.mark.parametrize("level", ["loud", "worker=loud", "wroker=debug"])
def test_an_invalid_log_level_is_rejected(shop: Shop, level: str) -> None:
    result = shop.run("--log-level", level, "queues")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")


def test_an_unexpected_error_is_one_line_and_debug_shows_where(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("jobyard.cli.session.make_store", burst)
    quiet = shop.run("--store", "memory://", "queues")
    assert (quiet.exit_code, "Traceback" in quiet.stderr) == (1, False)
    assert "Error: unexpected RuntimeError: a bug" in quiet.stderr
    assert "Traceback" in shop.run("--store", "memory://", "--log-level", "debug", "queues").stderr


def test_a_closed_pipe_is_not_an_error(shop: Shop) -> None:
    for number in range(50):
        shop.enqueue("send", {"to": str(number) * 5000})
    command = f"{JOBYARD} jobs list --json | head -c 1"
    result = subprocess.run(
        command, check=False, shell=True, cwd=shop.folder, env=shop.environment(), capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("{", "")


def test_colour_and_tables_only_on_a_terminal(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    assert "\x1b" not in shop.run("jobs", "list").stdout
    with shop.on_terminal("jobs", "list") as terminal:
        assert terminal.end() == 0
        assert "\x1b[33mPENDING" in terminal.seen
    with shop.on_terminal("jobs", "list", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        assert "PENDING" in terminal.seen
        assert "\x1b[33m" not in terminal.seen


HELP = [("jobs", "--help"), ("queues", "set", "-h"), ("--log-level", "loud", "up", "--help")]


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_help_needs_no_valid_configuration(shop: Shop, words: tuple[str, ...]) -> None:
    Path("jobyard.yaml").write_text("store: {urk: x}\n")
    result = shop.run(*words)
    assert result.exit_code == 0
    assert "Usage:" in result.output
    result = shop.run("jobs", "list", "--text", "--help")  # a value, not a question for help
    assert result.exit_code == 1
    assert "urk" in result.stderr


def test_a_command_of_a_group_is_named_with_its_group(shop: Shop) -> None:
    result = shop.run("retry")
    assert result.exit_code == 2
    assert "jobs retry" in result.stderr
