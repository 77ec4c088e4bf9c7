"""What the house tests look at: tracked files, documents, their links, tables and code blocks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Block(NamedTuple):
    """A fenced block of a document; `mark` is the comment on the line above it."""

    path: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def tracked(*endings: str) -> list[Path]:
    """Files under version control that exist, or all files where there is no repository."""
    result = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        found = [ROOT / name for name in result.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return sorted(path for path in found if path.is_file() and (not endings or path.name.endswith(endings)))


def documents() -> list[Path]:
    return tracked(".md")


def blocks(path: Path) -> list[Block]:
    found: list[Block] = []
    lines = path.read_text("utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        above = re.fullmatch(r"<!-- (.+) -->", lines[start - 1]) if start else None
        mark = above[1] if above else ""
        found.append(
            Block(path, start + 1, lines[start][3:].strip(), mark, "\n".join(lines[start + 1 : number]) + "\n")
        )
        start = None
    assert start is None, f"{path}: a block is not closed"
    return found


def prose(path: Path) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def rows(text: str) -> list[list[str]]:
    """The cells of every table row but headings and rules."""
    found: list[list[str]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_heading = number + 1 < len(lines) and re.fullmatch(r"\|[-:| ]+\|", lines[number + 1])
        if line.startswith("|") and not is_heading and not re.fullmatch(r"\|[-:| ]+\|", line):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(heading)}$\n(.*?)(?=^#+ |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert match is not None, f"there is no heading {heading}"
    return match[1]
