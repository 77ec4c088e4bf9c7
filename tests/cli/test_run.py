"""`jobyard run` and `jobyard sandboxd`, with a fake daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.support import Shop, error_code, shop
from tests.sandbox.fake_daemon import daemon_process
from tests.support import ROOT

from jobyard.app import sandbox
from jobyard.cli.commands import sandboxd

__all__ = ["shop"]


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("fake") / "sandbox.sock"
    with daemon_process(path):
        yield str(path)


def run(shop: Shop, socket: str, *words: str, program: str = "out hello", stdin: str = "") -> Result:
    Path("program.py").write_text(program)
    return shop.run("run", *words, stdin=stdin, JOBYARD_SANDBOX__SOCKET=socket, JOBYARD_APP="")


def test_stdout_is_the_output_and_stderr_ends_with_the_summary(shop: Shop, socket: str) -> None:
    result = run(shop, socket, "program.py", program="cat\nerr oops\nexit 3", stdin="typed")
    assert (result.exit_code, result.stdout) == (3, "typed")
    assert result.stderr.startswith("oops\njobyard: RUNTIME_ERROR, exit code 3, ")
    assert result.stderr.endswith("ms, CPU 1.0 ms, memory 1.0 MB, tier A\n")


def test_arguments_after_the_file_are_passed_to_the_program(shop: Shop, socket: str) -> None:
    result = run(shop, socket, "program.py", "a", "--time", "-x", "--", "-y", program="args")
    assert (result.exit_code, result.stdout) == (0, "a --time -x -- -y")


def test_limits_and_files(shop: Shop, socket: str) -> None:
    Path("data.txt").write_text("17")
    words = ("--time", "0.2", "--file", "data.txt", "--collect", "made/out.txt", "program.py")
    result = run(shop, socket, *words, program="files\nkeep\nsleep 5")
    assert (result.exit_code, result.stdout) == (137, "data.txt=17")
    assert "TIME_LIMIT, signal 9, " in result.stderr
    assert Path("made/out.txt").read_text() == "kept"
    cut = run(shop, socket, "--output", "3", "program.py")
    assert (cut.stdout, "OUTPUT_LIMIT" in cut.stderr, "stdout was truncated" in cut.stderr) == ("hel", True, True)


def test_json_output(shop: Shop, socket: str) -> None:
    result = run(shop, socket, "--json", "program.py")
    assert json.loads(result.stdout)["stdout"] == "hello\n"


def test_a_compile_error_has_its_own_exit_code(shop: Shop, socket: str) -> None:
    result = run(shop, socket, "program.py", program="compile 1")
    assert (result.exit_code, "COMPILE_ERROR" in result.stderr) == (126, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("program.txt",), 2, "--language"),
        (("none.py",), 2, "does not exist"),
        (("--time", "0", "program.py"), 125, "limits.time_seconds"),
        (("--time", "nan", "program.py"), 125, "limits.time_seconds"),
        (("--memory", "-1", "program.py"), 125, "limits.memory_mb"),
        (("--collect", "../x", "program.py"), 125, "collect.0"),
        (("--file", "none.txt", "program.py"), 125, "none.txt"),
        (("binary.py",), 125, "UTF-8"),
        (("empty.py",), 125, "source"),
    ],
)
def test_invalid_input_is_rejected(shop: Shop, socket: str, words: tuple[str, ...], code: int, says: str) -> None:
    Path("program.txt").write_text("x")
    Path("binary.py").write_bytes(b"\xff")
    Path("empty.py").write_text("")
    result = run(shop, socket, *words)
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr
    assert result.stdout == ""


def test_a_program_that_could_not_run_has_its_own_exit_code(shop: Shop, socket: str) -> None:
    result = run(shop, socket, "program.py", program="refuse SPAWN_FAILED")
    assert result.exit_code == 125
    assert result.stderr.startswith("jobyard: not run: SPAWN_FAILED: ")


def test_without_a_socket_a_daemon_is_started_for_the_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sandbox, "DAEMON", "tests.sandbox.fake_daemon")
    result = run(shop, "", "program.py")
    assert (result.exit_code, result.stdout) == (0, "hello\n"), result.stderr
    monkeypatch.setattr(sandbox, "DAEMON", "tests.no_such_module")
    result = run(shop, "", "program.py")
    assert result.exit_code == 125
    assert result.stderr.splitlines()[-1].startswith("jobyard: not run: SANDBOX_UNAVAILABLE: ")
    assert "no_such_module" in result.stderr.splitlines()[-1]


def test_an_unknown_language_names_the_known_ones(shop: Shop) -> None:
    result = run(shop, "", "--language", "pyhton", "program.py")
    assert result.exit_code == 125
    assert 'Did you mean "python"? Known: bash, c, cpp, ' in result.stderr


def test_the_retention_of_the_program_queue_does_not_depend_on_who_opens_the_store(shop: Shop) -> None:
    Path("jobyard.yaml").write_text("queues:\n  code:\n    max_per_group: 2\n")
    shop.work_off()
    [queue] = [each for each in shop.json("queues")["queues"] if each["name"] == "code"]
    assert (queue["settings"]["max_per_group"], queue["settings"]["keep_failed_seconds"]) == (2, 3600)


def test_sandboxd_executes_the_daemon_without_secrets(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], dict[str, str]]] = []

    def execve(path: str, words: list[str], environment: dict[str, str]) -> None:
        seen.append((words, environment))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    variables = {"JOBYARD_STORE": "redis://:secret@host", "JOBYARD_SANDBOX__ALLOW_USERS": "root, 12345"}
    result = shop.run("sandboxd", "--socket", "/s", "--min-tier", "A", "--slots", "3", "--json", **variables)
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"socket": "/s"})
    [(words, environment)] = seen
    assert words[1:] == [
        *("-m", sandbox.DAEMON, "--socket", "/s", "--min-tier", "A", "--slots", "3"),
        *("--allow-uid", "0", "--allow-uid", "12345"),
    ]
    assert environment["NOTIFY_SOCKET"] == "/run/systemd/notify"
    assert not any("secret" in value for value in environment.values())
    assert shop.run("sandboxd", "--min-tier", "Z").exit_code == 2
    for given, extra in (({}, ["--unix-sockets"]), ({"JOBYARD_SANDBOX__UNIX_SOCKETS": "true"}, [])):
        assert shop.run("sandboxd", *extra, **given).exit_code == 0
        assert seen[-1][0][-1] == "--unix-sockets"
    for given, extra in (({}, ["--tcp-sockets", "16"]), ({"JOBYARD_SANDBOX__TCP_SOCKETS": "16"}, [])):
        assert shop.run("sandboxd", *extra, **given).exit_code == 0
        assert seen[-1][0][-2:] == ["--tcp-sockets", "16"]
    refused = shop.run("sandboxd", JOBYARD_SANDBOX__ALLOW_USERS="nobody-of-that-name")
    assert (refused.exit_code, error_code(refused)) == (1, "configuration")
    assert sandboxd.DEFAULT_SOCKET == "/run/jobyard/sandbox.sock"
