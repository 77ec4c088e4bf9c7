"""The table at the end of a run: what each platform did, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from jobyard import State
from jobyard.api.schemas.workflows import WorkflowRunView
from jobyard.domain.workflow_files.step_state import StepStatus
from scanner import database
from scanner.sites import PLATFORMS

HEADINGS = ("platform", "jobs", "steps", "retries", "failures", "seconds")


@dataclass
class Row:
    """The work of one platform."""

    jobs: int = 0
    steps: int = 0  # that ran, each item of a list counted
    retries: int = 0
    failures: int = 0  # jobs that failed
    seconds: float = 0.0  # in which a job ran

    def add(self, run: WorkflowRunView, retries: int) -> None:
        ended = [step for step in run.steps if step.status in (StepStatus.COMPLETED, StepStatus.FAILED)]
        self.jobs += 1
        self.steps += sum(1 if step.items is None else step.items.ended for step in ended)
        self.retries += retries
        self.failures += run.state is not State.COMPLETED
        self.seconds += run.elapsed_seconds or 0.0


def summarize(runs: Iterable[tuple[WorkflowRunView, int]]) -> dict[str, Row]:
    """Runs with the number of their retries."""
    rows = {platform: Row() for platform in PLATFORMS}
    for run, retries in runs:
        rows[run.platform].add(run, retries)
    return rows


def print_summary(console: Console, rows: Mapping[str, Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "platform" else "right")
    for platform, row in rows.items():
        table.add_row(platform, *cells(row))
    table.add_row("all", *cells(total(rows)), style="bold")
    console.print(table)


def total(rows: Mapping[str, Row]) -> Row:
    return Row(*(sum(column) for column in zip(*map(astuple, rows.values()), strict=True)))


def cells(row: Row) -> tuple[str, ...]:
    failures = f"[red]{row.failures}[/]" if row.failures else "0"
    return str(row.jobs), str(row.steps), str(row.retries), failures, f"{row.seconds:.1f}"


def print_findings(console: Console, path: Path) -> None:
    """What the workflows have written, and where."""
    with database.transaction(str(path)) as connection:
        verdicts = connection.execute(database.VERDICTS).fetchall()
        failures = connection.execute("SELECT step, error FROM failures").fetchall()
    console.print("Products: " + (", ".join(f"{count} {verdict}" for verdict, count in verdicts) or "none"))
    for step, error in failures:
        console.print(f"Recorded by an on_failure step: {step} failed with {error}", markup=False)
    folder = path.parent.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.parent
    console.print(f"Results: sqlite3 {folder}/{path.name}  ·  logs: {folder}/*.log", markup=False)
