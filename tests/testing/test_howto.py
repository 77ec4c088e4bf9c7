"""The examples of docs/howto/testing.md, run and type-checked as they are written."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import ROOT, mypy, python

PAGE = ROOT / "docs/howto/testing.md"


def program() -> str:
    return "\n\n".join(re.findall(r"```python(?: app)?\n(.*?)```", PAGE.read_text(), re.DOTALL))


def test_the_examples_run(tmp_path: Path) -> None:
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "test_examples.py").write_text(program())
    response = python("-m", "pytest", "-q", "-W", "error", "test_examples.py", cwd=tmp_path)
    assert response.returncode == 0, response.stdout
    assert f"{program().count('def test_')} passed" in response.stdout
    assert not (tmp_path / "jobs.db").exists()  # the real store was never opened


def test_the_examples_are_typed(tmp_path: Path) -> None:
    (tmp_path / "examples.py").write_text(program())
    assert mypy(tmp_path / "examples.py") == ""
