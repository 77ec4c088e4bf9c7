"""References say what the code says: states, errors, the store's verbs and tables, settings, the command line."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import click
import pytest
from tests.house.make_docs import MADE
from tests.house.refusals import refusals
from tests.house.repository import DOCS, ROOT, blocks, documents, prose, rows, section
from tests.support import subcommands

import jobyard
from jobyard import Jobyard, errors
from jobyard.cli import cli
from jobyard.config.consequences import CONSEQUENCES, if_wrong
from jobyard.config.keys import SECTIONS
from jobyard.config.settings import CONCURRENCY, LEASE_SECONDS, SETTINGS, SHUTDOWN_TIMEOUT
from jobyard.domain.explain import CODES
from jobyard.domain.job import State
from jobyard.domain.state import LEGAL
from jobyard.ports.admin_store import AdminStore
from jobyard.ports.job_store import JobStore
from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import ScheduleStore
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import WorkflowStore
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.database_file import connect

CONTRACT = DOCS / "store-contract.md"


def code(cell: str) -> str:
    match = re.fullmatch(r"`(.+)`", cell)
    assert match is not None, cell
    return match[1]


def test_every_exception_can_be_imported_from_jobyard() -> None:
    names = {each.__name__ for each in error_classes()}
    assert names - set(jobyard.__all__) == set()
    assert all(getattr(jobyard, name) is getattr(errors, name) for name in names)


def test_the_diagram_has_the_legal_arrows() -> None:
    [diagram] = [block.text for block in blocks(DOCS / "states.md") if block.language == "mermaid"]
    drawn = re.findall(r"^\s+([A-Z]+) --> ([A-Z]+)", diagram, flags=re.MULTILINE)
    legal = [(str(old), str(new)) for old, allowed in LEGAL.items() for new in allowed]
    assert sorted(drawn) == sorted(legal)
    assert [row[0] for row in rows(prose(DOCS / "states.md"))[: len(State)]] == [str(state) for state in State]


def error_classes() -> list[type[errors.JobyardError]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [value for value in found if issubclass(value, errors.JobyardError)]


def test_the_error_table_names_every_class_and_code() -> None:
    table = rows(prose(DOCS / "errors.md").partition("## Over HTTP")[0])
    documented = [(code(row[0]), code(row[1])) for row in table]
    assert documented == [(value.code, value.__name__) for value in error_classes()]
    assert len({value.code for value in error_classes()}) == len(documented)
    assert all(all(row) for row in table)


def test_the_error_table_names_every_code_of_the_server() -> None:
    found = refusals()
    known = {value.code for value in error_classes()}
    documented = {code(row[0]): row[1] for row in rows(section((DOCS / "errors.md").read_text("utf-8"), "Over HTTP"))}
    assert set(documented) == set(found) - known
    shown = {
        name: ", ".join(map(str, sorted(statuses))) or "any" for name, statuses in found.items() if name in documented
    }
    assert documented == shown


def test_the_error_tree_is_that_of_the_classes() -> None:
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("\n\n")[1].strip()
    assert [block.text.strip() for block in blocks(DOCS / "errors.md")] == [tree]
    above: list[str] = []
    drawn: dict[str, str] = {}
    for line in tree.splitlines():
        name = re.search(r"\w+", line)
        assert name is not None
        depth = name.start() // 4
        above[depth:] = [name[0]]
        if depth:
            drawn[name[0]] = above[depth - 1]
    assert drawn == {value.__name__: value.__bases__[0].__name__ for value in error_classes()[1:]}


PORTS = (JobStore, AdminStore, ScheduleStore, RecordStore, WorkflowStore, Store)


@pytest.mark.parametrize("port", PORTS)
def test_the_contract_names_every_verb_and_no_other(port: type) -> None:
    documented = [code(row[0]) for row in rows(section(CONTRACT.read_text("utf-8"), port.__name__))]
    others = {verb for part in PORTS if part in port.__mro__[1:] for verb in dir(part)}
    functions = {verb for verb, value in inspect.getmembers(port, inspect.isfunction) if not verb.startswith("_")}
    assert sorted(documented) == sorted(functions - others)


async def test_migrations_from_scratch_make_the_documented_schema(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.close()
    connection = connect(tmp_path / "jobs.db", "NORMAL", writer=False)
    made = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    connection.close()
    documented = [code(row[0]) for row in rows(section(CONTRACT.read_text("utf-8"), "Tables"))]
    assert sorted(documented) == sorted(name for (name,) in made)


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_made_documents_are_current(path: Path) -> None:
    assert path.read_text("utf-8") == MADE[path](), "run: python -m tests.house.make_docs"


def test_every_flag_with_a_variable_is_a_setting() -> None:
    def flags(command: click.Command) -> set[tuple[str, str]]:
        found = {
            (str(option.envvar), option.opts[0])
            for option in command.params
            if isinstance(option, click.Option) and option.envvar
        }
        below = command.commands.values() if isinstance(command, click.Group) else ()
        return found.union(*(flags(child) for child in below))

    assert flags(cli) == {(setting.variable, setting.flag) for setting in SETTINGS if setting.flag}


def test_every_setting_says_what_it_does_and_what_happens_if_it_is_wrong() -> None:
    names = {setting.key or setting.variable for setting in SETTINGS}
    assert set(CONSEQUENCES) <= names, "of settings that do not exist"
    assert [setting.variable for setting in SETTINGS if not setting.doc or not if_wrong(setting)] == []
    keys = {f"{section}.{word}" for section, words in SECTIONS.items() for word in words}
    assert keys <= names, "keys of the file that the page does not have"


def test_the_command_line_has_the_defaults_of_the_api() -> None:
    api = inspect.signature(Jobyard.worker).parameters
    settings = {"concurrency": CONCURRENCY, "lease": LEASE_SECONDS, "shutdown_timeout": SHUTDOWN_TIMEOUT}
    assert {word: float(setting.default) for word, setting in settings.items()} == {
        word: api[word].default for word in settings
    }


def shown_commands() -> list[str]:
    """Command lines in the documents: whole inline code, or lines of a block, that begin with the program's name."""
    found: list[str] = []
    for path in documents():
        if path in MADE:
            continue
        found += re.findall(r"`(jobyard [^`]+)`", prose(path))
        lines = (line for block in blocks(path) if not block.language for line in block.text.splitlines())
        found += [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?jobyard ", line)]
    return sorted(set(found))


@pytest.mark.parametrize("line", shown_commands())
def test_commands_in_documents_exist(line: str) -> None:
    command: click.Command = cli
    words = iter(shlex.split(line, comments=True)[1:])
    for word in words:
        if word.startswith("-"):
            known_options = (*command.params, *cli.params)  # those of the root may stand behind a command
            option = next((option for option in known_options if word in option.opts), None)
            assert isinstance(option, click.Option), f"{command.name} has no {word}"
            if not option.is_flag:
                next(words, None)
        elif isinstance(command, click.Group):
            known = subcommands(command)
            assert word in known, f"{command.name} has no {word}"
            command = known[word]


def test_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    texts = "\n".join(path.read_text("utf-8") for path in documents())
    shown = set(re.findall(r"(?:^|`)make ([a-z]+)", texts, flags=re.MULTILINE))
    assert shown <= targets


def test_every_cause_of_waiting_has_a_cure() -> None:
    causes = rows(section((DOCS / "howto/limits-and-fairness.md").read_text("utf-8"), "Why is my job waiting?"))
    assert {word for row in causes for word in re.findall(r"`(\w+)`", row[0])} == set(CODES)
