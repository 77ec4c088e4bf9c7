"""Rules of the house that no checker knows: docstrings, sizes, SQL files, versions, nothing of one machine."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from tests.house.repository import ROOT, tracked

MOST_LINES = 500
# Written in pieces, so that this file does not hold what it forbids.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.~-])/(?:wo" + r"rk|home/\w+|Users/\w+|ro" + r"ot)/",
            r"/opt/p" + r"ypi",
            r"files\.python" + r"hosted\.org",
            r"p" + r"ypi\.org/simple",
            r"--(?:extra-)?index" + r"-url",
        ]
    )
)
# Words that hide who acts or how many: the subject of a sentence is the worker, the caller, the token, and "at most N".
OBSCURE = re.compile(r"\b(?:whoever|somebody|so many|so much|handed in|who asks)\b", re.IGNORECASE)
# Not parsed as Python: that would take seconds for all files.
DOCSTRING = re.compile(r'(?:#.*\n)*r?"""[^\n"].*?(?:"""|\n\n)')


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_module_says_in_one_line_why_it_exists() -> None:
    """One line, then an empty one if there are more. Only a package may be empty."""
    texts = {named(path): path.read_text("utf-8") for path in tracked(".py")}
    wanted = {name: text for name, text in texts.items() if text.strip() or not name.endswith("/__init__.py")}
    assert [name for name, text in wanted.items() if not DOCSTRING.match(text)] == []


def test_no_file_is_long() -> None:
    sizes = {named(path): len(path.read_text("utf-8").splitlines()) for path in tracked(".py", ".sql")}
    assert {name: lines for name, lines in sizes.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_named_statement_has_a_signature_and_is_used(store: str) -> None:
    folder = ROOT / "src/jobyard/stores" / store
    code = "\n".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    sql = "\n".join(path.read_text("utf-8") for path in (folder / "sql").glob("*.sql"))
    statements = re.findall(r"^-- name: (\w+)(.*)", sql, flags=re.MULTILINE)
    assert [name for name, signature in statements if not signature.startswith("(")] == []
    assert [
        name for name, _ in statements if not name.startswith(("audit_", "repair_")) and f'"{name}"' not in code
    ] == []


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[(\d[^\]]*)\]", changes, flags=re.MULTILINE)
    assert released[0] == project["version"] == metadata.version("jobyard")
    assert "## [Unreleased]" in changes


def test_nothing_of_one_machine() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{named(path)}: {match[0]}" for match in FOREIGN.finditer(text)]
    assert found == []


def test_prose_names_who_acts() -> None:
    texts = [path for path in tracked(".py", ".md", ".lua") if not path.is_relative_to(ROOT / "tests")]
    found = [
        f"{named(path)}:{number}: {match[0]}"
        for path in texts
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := OBSCURE.search(line)) and "@" not in line
    ]
    assert found == []
