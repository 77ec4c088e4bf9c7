"""The program that the API promises, as it is written, and what the type checker says of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support import mypy, python

PROGRAM = Path(__file__).parent / "program.py.txt"
TYPES = Path(__file__).parent / "types.py.txt"


def expected_errors(path: Path) -> set[int]:
    return {n for n, line in enumerate(path.read_text().splitlines(), 1) if "# error" in line}


def reported(output: str) -> set[int]:
    return {int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line}


def test_runs_as_written(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "program.py")
    result = python("program.py", cwd=tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == ("{'suite': 'smoke', 'passed': True}\n", "", 0)
    assert (tmp_path / "jobs.db").exists()


def test_passes_mypy_strict(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "program.py")
    assert mypy(tmp_path / "program.py") == ""


def test_mypy_rejects_wrong_calls_and_accepts_correct_ones(tmp_path: Path) -> None:
    shutil.copy(TYPES, tmp_path / "types_of_calls.py")
    output = mypy(tmp_path / "types_of_calls.py")
    assert reported(output) == expected_errors(TYPES), output
