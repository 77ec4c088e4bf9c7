"""Documents stay true where a program can tell: links, cited tests, code that runs."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from tests.house.repository import DOCS, ROOT, Block, blocks, documents, prose
from tests.support import mypy, python

from jobyard.config.load import load
from jobyard.config.sections import Configuration

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CITED = re.compile(r"`([\w/.-]+\.py)::(\w+)`")
SHORT = {"suite/": "tests/conformance/suite/"}
SECTIONS = frozenset(field.name for field in msgspec.structs.fields(Configuration))


def is_configuration(block: Block) -> bool:
    """Whether its keys on the left are sections of jobyard.yaml."""
    keys = set(re.findall(r"^\w[\w-]*(?=:)", block.text, flags=re.MULTILINE))
    return block.language == "yaml" and not block.mark and bool(keys) and keys <= {*SECTIONS, "schedules"}


CONFIGURATIONS = [block for path in documents() for block in blocks(path) if is_configuration(block)]
RUNNABLE = [block for path in documents() for block in blocks(path) if block.mark == "runnable"]


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def full(path: str) -> Path:
    for short, whole in SHORT.items():
        if path.startswith(short):
            return ROOT / (whole + path.removeprefix(short))
    return ROOT / path


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in found if name.startswith("test_"))


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.title)
def test_configurations_are_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "jobyard.yaml").write_text(block.text)
    load({}, str(tmp_path / "jobyard.yaml"))


def test_there_are_configurations_to_check() -> None:
    assert len(CONFIGURATIONS) > 10


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_cited_tests_exist(path: Path) -> None:
    cited = [(full(file), name) for file, name in CITED.findall(path.read_text("utf-8"))]
    assert [f"{file}::{name}" for file, name in cited if not file.exists() or name not in names_in(file)] == []


def test_the_tour_walks_each_flow_in_few_files() -> None:
    """Five flows, each of at most 15 files of the package, each file once."""
    tour = DOCS / "tour.md"
    flows = re.split(r"^## ", tour.read_text("utf-8"), flags=re.MULTILINE)[1:]
    numbered = {flow.splitlines()[0]: LINK.findall(flow) for flow in flows if flow[0].isdigit()}
    assert len(numbered) == 5
    for title, links in numbered.items():
        assert 8 <= len(links) <= 15, title
        assert len(set(links)) == len(links), title
        assert all((tour.parent / link).is_file() for link in links), title


def test_the_readme_shows_what_make_run_runs() -> None:
    command = re.search(r"^run:.*\n.*exec \$\(BIN\)/(.+)$", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    assert command is not None
    assert f"`{command[1]}`" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_names_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [sentence] = re.findall(
        r"smaller installations choose from (.+?), and", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", sentence)) == extras.keys() - {"all", "bench", "dev"}


def test_every_guarantee_names_its_test() -> None:
    guarantees = [line for line in (DOCS / "semantics.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(guarantees) > 40
    assert [line for line in guarantees if line != "| guarantee | test |" and not CITED.search(line)] == []


@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: block.title)
def test_runnable_blocks_run(block: Block, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.text, "utf-8")
    result = python("-W", "error", "program.py", cwd=tmp_path)
    # Jobs that fail on purpose are part of the show, also their tracebacks, which the log indents; others are not.
    has_failed = any(line.startswith("Traceback") for line in result.stderr.splitlines())
    assert (result.returncode, has_failed) == (0, False), result.stderr
    expected = output_of(block)
    if expected is not None:
        assert result.stdout == expected


def test_the_canvas_of_celery_prints_what_ours_prints(tmp_path: Path) -> None:
    pytest.importorskip("celery")
    page = blocks(DOCS / "howto" / "from-celery.md")
    [theirs] = [block for block in page if block.mark == "celery"]
    ours = page[page.index(theirs) + 1]
    (tmp_path / "program.py").write_text(theirs.text, "utf-8")
    result = python("program.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, output_of(ours)), result.stderr


def test_runnable_blocks_pass_mypy_strict(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    for number, block in enumerate(RUNNABLE):
        (folder / f"program_{number}.py").write_text(block.text, "utf-8")
    assert mypy(folder) == ""


def test_shown_files_are_as_they_are() -> None:
    """A block marked `file: path` shows that file of an example, which has tests of its own."""
    shown = [block for path in documents() for block in blocks(path) if block.mark.startswith("file: ")]
    assert {block.path.name for block in shown} >= {"fastapi.md", "django.md"}
    for block in shown:
        assert block.text == (ROOT / block.mark.removeprefix("file: ")).read_text("utf-8"), block.title


def output_of(block: Block) -> str | None:
    """A block marked `output` says what the runnable block before it prints."""
    page = blocks(block.path)
    following = page[page.index(block) + 1 :]
    return following[0].text if following and following[0].mark == "output" else None


def test_the_readme_shows_the_promised_program() -> None:
    shown = [block.text for block in RUNNABLE if block.path == ROOT / "README.md"]
    assert shown == [(ROOT / "tests/app/program.py.txt").read_text("utf-8")]


def test_there_is_something_to_run() -> None:
    pages = {block.path.name for block in RUNNABLE}
    assert {"README.md", "first-queue.md", "own-transaction.md"} <= pages
