"""Put known faults into a copy of the code, one at a time, and see that the tests notice each: `make mutants`.

Arguments select faults by a part of their names. A fault that no test notices, and one whose text is no longer in the
code, fail the run. The score is written to docs/reliability.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
COPIED = ("src", "tests", "docs", "examples", "bench", "deploy", "pyproject.toml", "Makefile", "README.md")
TIMEOUT_SECONDS = 600.0
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
MEMORY, SQLITE, REDIS, POSTGRES = "[memory", "[sqlite", "[redis", "[postgres"


class Mutant(NamedTuple):
    """A fault: `old`, which is in the file once, becomes `new`; `tests` are the arguments of pytest."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def suite(name: str, store: str = "") -> tuple[str, ...]:
    return (f"tests/conformance/suite/test_{name}.py", *(("-k", store) if store else ()))


MUTANTS = (
    Mutant(
        "admission: a group's own limit is ignored",
        "src/jobyard/domain/admission.py",
        "    if group.limit is not None:\n        return group.limit\n",
        "",
        suite("admission", MEMORY),
    ),
    Mutant(
        "admission: a paused group is admitted",
        "src/jobyard/domain/admission.py",
        "    if group.paused:\n        return 0\n",
        "",
        suite("admission", MEMORY),
    ),
    Mutant(
        "state: one attempt too many",
        "src/jobyard/domain/state.py",
        "if lease.attempt >= lease.max_attempts:",
        "if lease.attempt > lease.max_attempts:",
        ("tests/domain/test_state.py",),
    ),
    Mutant(
        "state: the last worker's death is not counted",
        "src/jobyard/domain/state.py",
        "if deaths + 1 >= MAX_DEATHS + ends_itself:",
        "if deaths >= MAX_DEATHS + ends_itself:",
        ("tests/domain/test_state.py",),
    ),
    Mutant(
        "state: a cancelled job waits again",
        "src/jobyard/domain/state.py",
        "now, to=State.CANCELLED, reason=request.ends_job",
        "now, to=State.PENDING, reason=request.ends_job",
        ("tests/domain/test_state.py",),
    ),
    Mutant(
        "backoff: grows one failure late",
        "src/jobyard/domain/retry.py",
        "backoff.factor ** (failures - 1)",
        "backoff.factor ** max(0, failures - 2)",
        ("tests/domain/test_retry.py",),
    ),
    Mutant(
        "backoff: jitter of half the width",
        "src/jobyard/domain/retry.py",
        "(1 + backoff.jitter * (2 * roll - 1))",
        "(1 + backoff.jitter * (roll - 0.5))",
        ("tests/domain/test_retry.py",),
    ),
    Mutant(
        "SQLite: a renewal ignores the token",
        "src/jobyard/stores/sqlite/sql/leases.sql",
        "ELSE expires_at END\nWHERE sequence = ? AND token = ?",
        "ELSE expires_at END\nWHERE sequence = ? AND ? IS NOT NULL",
        suite("lease", SQLITE),
    ),
    Mutant(
        "SQLite: an insert leaves a full queue's counts",
        "src/jobyard/stores/sqlite/insert.py",
        "    _require_room(touched.values())\n",
        "",
        suite("back_pressure", SQLITE),
    ),
    Mutant(
        "PostgreSQL: a renewal ignores the token",
        "src/jobyard/stores/postgres/functions/extend.sql",
        "k.sequence = u.sequence AND k.token = u.token AND k.external_id IS NULL",
        "k.sequence = u.sequence AND k.external_id IS NULL",
        suite("lease", POSTGRES),
    ),
    Mutant(
        "Redis: a renewal ignores the token",
        "src/jobyard/stores/redis/lua/extend.lua",
        "if record and sub(record, 1, 16) == request.keys[index + 3] then",
        "if record then",
        suite("lease", REDIS),
    ),
    Mutant(
        "SQLite: a refused insert stays in the caller's transaction",
        "src/jobyard/stores/sqlite/connection.py",
        'connection.execute("ROLLBACK TO jobyard")',
        "pass",
        ("tests/conformance", "tests/stores", "-k", "sqlite and transaction"),
    ),
    Mutant(
        "Redis: reclaim ends a lease that was renewed meanwhile",
        "src/jobyard/stores/redis/leases.py",
        'settle | judged | {"expired_only": True}',
        "settle | judged",
        suite("lease", REDIS),
    ),
    Mutant(
        "PostgreSQL: reclaim ends a lease that was renewed meanwhile",
        "src/jobyard/stores/postgres/leases.py",
        '{"p_expired_before": judged_at, "p_impatient": True}',
        '{"p_impatient": True}',
        suite("lease", POSTGRES),
    ),
    Mutant(
        "PostgreSQL: room counts a paused group",
        "src/jobyard/stores/postgres/functions/room.sql",
        "CASE WHEN g.paused THEN 0 ELSE g.waiting END AS waiting",
        "g.waiting",
        suite("admission", POSTGRES),
    ),
    Mutant(
        "PostgreSQL: a completed job keeps its private payload",
        "src/jobyard/stores/postgres/functions/apply.sql",
        "CASE WHEN v_to <> 'COMPLETED' THEN k.private_payload END",
        "k.private_payload",
        ("tests/stores/test_postgres.py", "tests/stores/test_postgres_caller_transaction.py", "-k", "private"),
    ),
    Mutant(
        "worker: jobs whose settlement waits are not renewed",
        "src/jobyard/worker/claimer.py",
        "return [*self.attempts, *self._outbox.keys()]",
        "return [*self.attempts]",
        ("tests/worker",),
    ),
    Mutant(
        "worker: a quiet worker starts what a claim in flight brings",
        "src/jobyard/worker/claimer.py",
        "if self.is_stopping or self.is_quiet:\n                # The claim",
        "if self.is_stopping:\n                # The claim",
        ("tests/worker/test_control.py",),
    ),
    Mutant(
        "server: logout without its CSRF check",
        "src/jobyard/server/routes/login.py",
        "if not csrf_token_fits(session, given):",
        "if False:",
        ("tests/server/test_login.py",),
    ),
)


class Verdict(NamedTuple):
    mutant: Mutant
    caught_by: str  # the first failed test; empty if the fault survived
    note: str
    seconds: float


def judge(mutant: Mutant, folder: Path) -> Verdict:
    began = time.monotonic()
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target)
    file = folder / mutant.path
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        return Verdict(mutant, "", f"its text is {text.count(mutant.old)} times in {mutant.path}", 0.0)
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    try:
        done = subprocess.run(
            [*words, *mutant.tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(mutant, "a timeout", "", time.monotonic() - began)
    seconds = time.monotonic() - began
    if done.returncode == 1 and (found := FAILED.search(done.stdout)):
        return Verdict(mutant, found[1], "", seconds)
    note = "" if done.returncode == 0 else done.stdout[-500:]
    return Verdict(mutant, "", note or "every test passed", seconds)


def main(names: Sequence[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    console = Console()

    def run(mutant: Mutant) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="jobyard-mutant-") as folder:
            verdict = judge(mutant, Path(folder))
        progress.advance(task)
        return verdict

    with Progress(console=console) as progress, ThreadPoolExecutor(2) as pool:
        task = progress.add_task("faults", total=len(chosen))
        verdicts = list(pool.map(run, chosen))
    table = Table("fault", "caught by", "seconds")
    for each in verdicts:
        table.add_row(each.mutant.name, each.caught_by or f"[red]not caught: {each.note}[/]", f"{each.seconds:.0f}")
    console.print(table)
    caught = sum(bool(each.caught_by) for each in verdicts)
    console.print(f"{caught} of {len(verdicts)} faults caught")
    if not names:
        write_page(verdicts)
    return 0 if caught == len(verdicts) else 1


def section() -> str:
    """The part of the page that this program wrote."""
    found = re.search(f"{BEGIN}.*?{END}", PAGE.read_text("utf-8"), flags=re.DOTALL)
    return found[0] if found else f"{BEGIN}\n{END}"


def write_page(verdicts: Sequence[Verdict]) -> None:
    caught = sum(bool(each.caught_by) for each in verdicts)
    rows = [f"| {each.mutant.name} | {f'`{each.caught_by}`' if each.caught_by else 'no test'} |" for each in verdicts]
    lines = (
        BEGIN,
        "## Faults put into the code",
        "",
        "`make mutants` puts faults into a copy of the code, one at a time, and runs tests. "
        f"{caught} of {len(verdicts)} were caught; the test named is the first that failed.",
        "",
        "| fault | caught by |",
        "|---|---|",
        *rows,
        END,
    )
    page = PAGE.read_text("utf-8").replace(section(), "").rstrip()
    PAGE.write_text(page + "\n\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
