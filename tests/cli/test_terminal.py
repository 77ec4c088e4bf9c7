"""What a job says is shown, never obeyed: control characters reach neither a terminal nor a pipe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.support import Shop, error_code, shop

from jobyard import Jobyard, cli
from jobyard.domain.job import LogLine, NewJob, Progress, Step
from jobyard.domain.text import visible
from jobyard.errors import BadOption
from jobyard.ports.job_store import Report

__all__ = ["shop"]

TITLE, CLEAR, C1, TURN = "\x1b]0;pwned\x07", "\x1b[2J", "\x9b2J", "\u202e"
EVIL = f"{TITLE}{CLEAR}{C1}{TURN}\x7f\r[bold]x[/bold]"
SHOWN = r"\x1b]0;pwned\x07\x1b[2J\x9b2J\u202e\x7f\r[bold]x[/bold]"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
EVIL_APP = f"""
@yard.job(queue="mail", max_attempts=1)
async def evil(ctx: Context, text: str) -> str:
    await ctx.log({EVIL!r})
    raise ValueError({EVIL!r})
"""


@pytest.fixture
def jobs(shop: Shop) -> tuple[str, str, str]:
    """One that failed, one that runs, one that waits; put past the checks of names, as an older version did."""
    path = shop.folder / f"{shop.module}.py"
    path.write_text(path.read_text() + EVIL_APP)
    failed = shop.enqueue("evil", {"text": EVIL})
    shop.work_off()

    async def fill(yard: Jobyard) -> tuple[str, str]:
        words = {"kind": EVIL, "queue": EVIL, "group": EVIL, "tags": (EVIL,)}
        await yard.store.insert([NewJob(id="running", **words), NewJob(id="waiting", **words)])  # type: ignore[arg-type]
        (lease,) = (await yard.store.exchange(EVIL, [], [EVIL], 1, 600)).leases
        progress = Progress(percent=5, message=EVIL)
        lines, step = (LogLine(message=EVIL, level=EVIL),), Step(name=EVIL, status=EVIL, data=EVIL)
        assert await yard.store.report([Report(key=lease.key, progress=progress, lines=lines, step=step)]) == ()
        await yard.store.set_limit(EVIL, EVIL, 1)
        return "running", "waiting"

    return (failed, *shop.do(fill))


def commands(failed: str) -> list[tuple[str, ...]]:
    return [
        *(("jobs", "show", job) for job in (failed, "running", "waiting")),
        *(("explain", job) for job in (failed, "running", "waiting")),
        ("jobs", "list"),
        ("dead", "list"),
        ("running",),
        ("queues",),
        ("groups", "list", EVIL),
        ("groups", "list", EVIL, "--limit", "1"),
        ("limits", "show", EVIL),
        ("limits", "show", EVIL, EVIL),
        ("top", "--once"),
        ("doctor",),
        ("queues", "pause", EVIL),
        ("queues", "pause", f"{EVIL}?"),
        ("enqueue", "evil", f"text={EVIL}", "--wait", "0"),
    ]


def test_text_for_pipes_and_json_hold_no_control_characters(shop: Shop, jobs: tuple[str, str, str]) -> None:
    seen = ""
    for words in commands(jobs[0]):
        for more in ((), ("--json",)):
            result = shop.run(*words, *more)
            assert not OBEYED.search(result.output), (words, more, result.output)
            if more and result.exit_code == 0:
                json.loads(result.stdout)
            seen += "" if more else result.output
    assert seen.count(SHOWN) > 20
    assert shop.json("jobs", "show", jobs[0])["payload"] == {"text": EVIL}


@pytest.mark.parametrize("words", [("running",), ("jobs", "show", "running"), ("top", "--once"), ("dead", "list")])
def test_a_terminal_gets_none_either(shop: Shop, jobs: tuple[str, str, str], words: tuple[str, ...]) -> None:
    with shop.on_terminal(*words, COLUMNS="400") as terminal:
        assert terminal.end() == 0
    assert SHOWN in terminal.seen
    assert not re.search(r"\x1b\]|\x1b\[2J|\x07|[\x80-\x9f]", terminal.seen)


def test_an_error_line_shows_them(shop: Shop, jobs: tuple[str, str, str]) -> None:
    result = shop.run("jobs", "show", EVIL)
    assert error_code(result) == "job_not_found"
    assert SHOWN in result.stderr


def test_lines_of_a_log_stay_lines_and_a_cell_stays_a_cell() -> None:
    assert visible("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert visible("a\n\tb\x1b") == r"a\n\tb\x1b"


async def test_names_with_c1_characters_are_refused() -> None:
    async with Jobyard("memory://") as yard:
        with pytest.raises(BadOption):
            await yard.set_limit("q\x9b", "g", 1)


def test_nothing_is_printed_past_render() -> None:
    folder = Path(str(cli.__file__)).parent
    found = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"\bclick\.s?echo\(|console\.print\(|^ *print\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert found == {"output.py", "top.py"}  # top prints whole frames, made of tables of output
