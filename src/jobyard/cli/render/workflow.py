"""Workflow files and their runs: a page of text, and a live view that redraws only on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from jobyard.api.schemas.workflows import WorkflowRunView, WorkflowStepView, WorkflowView
from jobyard.cli.render.output import bar, duration, echo, number, plain, print_markup, print_table, state, table
from jobyard.domain.job import State
from jobyard.domain.text import visible
from jobyard.domain.workflow_files.step_state import StepStatus, count_finished

MARKS = {
    StepStatus.PENDING: "[dim]·[/]",
    StepStatus.RUNNING: "[cyan]▶[/]",
    StepStatus.COMPLETED: "[green]✓[/]",
    StepStatus.FAILED: "[red]✗[/]",
    StepStatus.SKIPPED: "[dim]-[/]",
    StepStatus.INTERRUPTED: "[yellow]![/]",
}
COLOURS = {
    StepStatus.PENDING: "dim",
    StepStatus.RUNNING: "cyan",
    StepStatus.COMPLETED: "green",
    StepStatus.FAILED: "red",
    StepStatus.SKIPPED: "dim",
    StepStatus.INTERRUPTED: "yellow",
}
HEADINGS = ("", "~step", "~kind", "state", ">time", "~progress")
RUN_BAR, STEP_BAR = 30, 12
# Lines of the live view beside the steps: title, bar, headings, the note on hidden steps, and what the run waits for.
OTHER_LINES = 6
# Which steps a terminal shows that has no room for all.
IMPORTANCE = (
    StepStatus.FAILED,
    StepStatus.INTERRUPTED,
    StepStatus.RUNNING,
    StepStatus.PENDING,
    StepStatus.COMPLETED,
    StepStatus.SKIPPED,
)
# Takes a run, and why it waits, if it does.
Show: TypeAlias = Callable[[WorkflowRunView, str], None]


@contextmanager
def live_run(console: Console, *, is_shown: bool) -> Iterator[Show]:
    """A function that shows a run: in place on a terminal, elsewhere a line for each change of a step."""
    if not is_shown:
        yield lambda run, waits: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda run, waits: live.update(picture(run, console, waits), refresh=True)
    else:
        yield WorkflowLinePrinter()


class WorkflowLinePrinter:
    """A line for each change of a step, and for each reason why the run waits."""

    def __init__(self) -> None:
        self._states: dict[str, StepStatus] = {}
        self._waits = ""

    def __call__(self, run: WorkflowRunView, waits: str) -> None:
        if waits and waits != self._waits:
            echo(waits)
        self._waits = waits
        for step in run.steps:
            known = self._states.setdefault(step.id, StepStatus.PENDING)
            if step.status is not known:
                self._states[step.id] = step.status
                echo(_line(step))


def _line(step: WorkflowStepView) -> str:
    is_over = step.status in (StepStatus.COMPLETED, StepStatus.FAILED) and step.elapsed_seconds is not None
    took = f" in {duration(step.elapsed_seconds or 0)}" if is_over else ""
    return f"{step.id} {step.status}{took}{_why(step)}"


def _why(step: WorkflowStepView) -> str:
    return f": {step.reason}" if step.reason else ""


def picture(run: WorkflowRunView, console: Console, waits: str = "") -> RenderableType:
    """A run as a table with bars that fits into the console."""
    steps = shown_steps(run.steps, max(1, console.height - OTHER_LINES))
    parts: list[RenderableType] = [_text(title(run)), _text(_total(run))]
    parts.append(table(HEADINGS, [_row(step) for step in steps], console.width))
    hidden = Counter(step.status for step in run.steps if step not in steps)
    if hidden:
        counts = ", ".join(f"{count:,} {status}" for status, count in hidden.items())
        parts.append(_text(f"[dim]… and {counts}[/dim]"))
    if waits:
        parts.append(_text(f"[yellow]{escape(waits)}[/]"))
    return Group(*parts)


def _text(markup: str) -> Text:
    text = Text.from_markup(visible(markup))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def shown_steps(steps: Sequence[WorkflowStepView], room: int) -> list[WorkflowStepView]:
    """The most important steps, in the order of the file."""
    if len(steps) <= room:
        return list(steps)
    order = sorted(range(len(steps)), key=lambda place: (IMPORTANCE.index(steps[place].status), place))
    return [steps[place] for place in sorted(order[:room])]


def title(run: WorkflowRunView) -> str:
    took = "" if run.elapsed_seconds is None else f"  {duration(run.elapsed_seconds)}"
    return f"[bold]{escape(run.workflow_id)}[/] {run.job_id}  {state(run.state)}  on {escape(run.platform)}{took}"


def _total(run: WorkflowRunView) -> str:
    main = [step for step in run.steps if not step.on_failure]
    ended_badly = run.state.is_final and run.state is not State.COMPLETED
    has_failed = ended_badly or any(step.status is StepStatus.FAILED for step in main)
    finished = count_finished((step.status for step in main), has_failed=has_failed)
    percent = 100 * finished / len(main)
    if run.progress is not None and not run.state.is_final:
        percent = max(percent, run.progress.percent)  # it has the share of the running steps
    return f"[cyan]{bar(percent, 100, RUN_BAR)}[/] {percent:.0f}%  {finished} of {len(main)} steps"


def _row(step: WorkflowStepView) -> tuple[str, ...]:
    colour = COLOURS[step.status]
    took = "" if step.elapsed_seconds is None else duration(step.elapsed_seconds)
    return (
        MARKS[step.status],
        escape(step.id),
        f"[dim]{escape(step.kind)}[/]",
        f"[{colour}]{step.status}[/]",
        took,
        _detail(step),
    )


def _detail(step: WorkflowStepView) -> str:
    """The bar of a step with items or with a progress of its own, its attempts, and why it ended badly."""
    parts = []
    if step.items is not None:
        failed = f", {number(step.items.failed)} failed" if step.items.failed else ""
        counts = f"{number(step.items.ended)}/{number(step.items.total)}{failed}"
        parts.append(f"[cyan]{bar(step.items.ended, step.items.total, STEP_BAR)}[/] {counts}")
    elif step.percent is not None:
        parts.append(f"[cyan]{bar(step.percent, 100, STEP_BAR)}[/] {step.percent:.0f}%")
    if step.attempts > 1:
        parts.append(f"attempt {step.attempts}")
    parts += [escape(text) for text in (step.message, step.reason) if text]
    return " ".join(parts)


def show_run(console: Console, run: WorkflowRunView) -> None:
    """A run as text: all its steps."""
    print_markup(console, title(run))
    if run.reason:
        print_markup(console, f"[red]{escape(run.reason)}[/]")
    print_markup(console, _total(run) if console.is_terminal else escape(plain(_total(run))))
    print_table(console, HEADINGS, [_row(step) for step in run.steps], "")


def show_workflow(console: Console, workflow: WorkflowView) -> None:
    """A workflow file as text: params and steps."""
    platform = f"  on {escape(workflow.platform)}" if workflow.platform else ""
    print_markup(console, f"[bold]{escape(workflow.id)}[/] version {workflow.version}{platform}")
    if workflow.description:
        print_markup(console, f"  {escape(workflow.description)}")
    params = workflow.params["properties"]
    if params:
        print_markup(console, "\n[bold]Params[/]")
        required = workflow.params["required"]
        rows = [_param(name, schema, is_required=name in required) for name, schema in params.items()]
        print_table(console, ("~param", "type", "~default", "~description"), rows, "")
    print_markup(console, "\n[bold]Steps[/]")
    steps = (
        (
            escape(step.id) + (" [red](on failure)[/]" if step.on_failure else ""),
            escape(step.kind) + (" for each item" if step.has_items else ""),
            escape(", ".join(step.needs)) or "-",
            escape(step.description),
        )
        for step in workflow.steps
    )
    print_table(console, ("~step", "~kind", "~needs", "~description"), steps, "")


def _param(name: str, schema: dict[str, object], *, is_required: bool) -> tuple[str, ...]:
    default = "[yellow]required[/]" if is_required else escape(str(schema.get("default", "-")))
    return escape(name), escape(str(schema.get("type", ""))), default, escape(str(schema.get("description", "")))
