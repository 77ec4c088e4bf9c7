"""Validation of run requests."""

from __future__ import annotations

import math

import pytest

from jobyard.sandbox.daemon.validation import find_problem
from jobyard.sandbox.protocol import (
    ClientMessage,
    DaemonMessage,
    File,
    Limits,
    ProtocolError,
    RunRequest,
    frame_decoder,
)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 8,
        b"\x81\xa4type\xa1\xff",  # not UTF-8
        b"\x83\xa4type\xa3run\xa2id\x01\xa8language\xa2\xc3\x28",
        b"\x82\xa4type\xa6output\xa2fd\xa1\xed",
        b"\x91" * 100_000,
        b"",
    ],
    ids=lambda data: data[:12].hex(),
)
def test_invalid_frames_are_protocol_errors(data: bytes) -> None:
    """Any other exception would leave the connection open without a reader."""
    for kind in (ClientMessage, DaemonMessage):
        with pytest.raises(ProtocolError):
            frame_decoder(kind)(data)


def request(**rest: object) -> RunRequest:
    return RunRequest(id=1, language="python", source=b"", **rest)  # type: ignore[arg-type]


def test_valid_request() -> None:
    assert find_problem(request(files=(File(name="a/b.txt", data=b""),), args=("-x", ""))) == ""


@pytest.mark.parametrize("name", ["time_seconds", "cpu_seconds"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e308])
def test_seconds_must_be_finite_and_positive(name: str, value: float) -> None:
    assert name in find_problem(request(limits=Limits(**{name: value})))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["memory_mb", "processes", "files_open", "output_bytes", "disk_mb", "disk_files"])
@pytest.mark.parametrize("value", [0, -1, 2**62])
def test_counts_are_bounded(name: str, value: int) -> None:
    assert name in find_problem(request(limits=Limits(**{name: value})))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "a\0b", "a" * 256, "\ud800", "a/" * 600 + "a"]
)
def test_file_names_must_stay_below_the_folder(name: str) -> None:
    assert "files" in find_problem(request(files=(File(name=name, data=b""),)))


def test_duplicate_file() -> None:
    assert "twice" in find_problem(request(files=(File(name="a", data=b""), File(name="a", data=b"x"))))


@pytest.mark.parametrize("argument", ["a\0b", "\ud800"])
def test_arguments_must_be_valid_strings(argument: str) -> None:
    assert "args" in find_problem(request(args=(argument,)))
