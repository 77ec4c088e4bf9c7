"""Flags made from the table of settings."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from jobyard.cli.option_flags import setting_flag, settings_given
from jobyard.config.settings import CONCURRENCY, HOST, PORT

Given = dict[str, tuple[str, Any]]


@click.command()
@setting_flag(HOST)
@setting_flag(PORT, type=int)
@setting_flag(CONCURRENCY, type=int)
@click.option("--other")
@click.pass_context
def command(context: click.Context, /, **_: Any) -> Given:
    return settings_given(context)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--other", "x"], {}),
        (["--port", "9000"], {"server.port": ("--port", 9000)}),
        (
            ["--port", "8080", "--concurrency", "3"],
            {"server.port": ("--port", 8080), "worker.concurrency": ("--concurrency", 3)},
        ),
    ],
)
def test_only_settings_of_the_command_line_are_given(words: list[str], expected: Given) -> None:
    assert CliRunner().invoke(command, words, standalone_mode=False).return_value == expected
