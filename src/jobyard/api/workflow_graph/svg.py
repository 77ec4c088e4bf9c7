"""The graph of a workflow file as SVG: boxes of steps with their kind and state, and lines to the steps that need them.

The state is a word and an icon as well as a colour. The image follows the light or dark theme of the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobyard.api.workflow_graph.layout import Edge, Layout, Size, StepBox, layout
from jobyard.api.workflow_graph.style import ICONS, STYLE
from jobyard.api.workflow_graph.text import TextStyle, escaped, fitted, text_width
from jobyard.domain.text import counted
from jobyard.domain.workflow_files.definition import StepDefinition, WorkflowDefinition
from jobyard.domain.workflow_files.nodes import as_text
from jobyard.domain.workflow_files.step_state import PENDING, StepState, StepStatus

MARGIN = 24.0
TITLE_HEIGHT = 44.0
PADDING = 14.0
LANE_PADDING = 16.0
LANE_LABEL = 22.0
MIN_WIDTH, MAX_WIDTH = 132.0, 300.0
NAME_SIZE, KIND_SIZE, PILL_SIZE = 14.0, 12.0, 11.0
PILL_HEIGHT, PILL_GAP, PILL_PADDING, ICON = 18.0, 6.0, 8.0, 12.0
ARROW = 8.0
STACK = 5.0  # how far the cards behind a step with items stand out


class _Badge(NamedTuple):
    text: str
    style: str
    icon: str = ""

    @property
    def width(self) -> float:
        return text_width(self.text, PILL_SIZE) + 2 * PILL_PADDING + (ICON if self.icon else 0.0)


def render_graph(definition: WorkflowDefinition, states: Mapping[str, StepState] | None = None) -> str:
    """An SVG document; with states, each step shows its own."""
    main = _Lane(definition.steps, states)
    cleanup = _Lane(definition.on_failure, states)
    name, version = fitted(definition.id, 480.0, 16, TextStyle.BOLD), f"version {definition.version}"
    title_width = text_width(name, 16, TextStyle.BOLD) + 12 + text_width(version, 12)
    lane_width = cleanup.width + 2 * LANE_PADDING if definition.on_failure else 0.0
    width = 2 * MARGIN + max(main.width, lane_width, title_width)
    top = MARGIN + TITLE_HEIGHT
    height = top + main.height + MARGIN
    parts = [
        f'<text class="ink" x="{MARGIN:g}" y="40" font-size="16" font-weight="600">{escaped(name)}'
        f'<tspan class="soft" dx="8" font-size="12" font-weight="400">{version}</tspan></text>',
        *main.drawn("main", MARGIN, top),
    ]
    if definition.on_failure:
        lane_height = LANE_LABEL + cleanup.height + 2 * LANE_PADDING
        parts += _lane_frame(MARGIN, height, lane_width, lane_height)
        parts += cleanup.drawn("cleanup", MARGIN + LANE_PADDING, height + LANE_PADDING + LANE_LABEL)
        height += lane_height + MARGIN
    label = f"Steps of the workflow {definition.id}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="workflow-graph" viewBox="0 0 {width:.0f} {height:.0f}"'
            f' width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escaped(label)}"'
            " font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\">",
            f"<desc>{escaped(_description(definition, states))}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="12"/>',
            *parts,
            "</svg>\n",
        ]
    )


class _Lane:
    """The steps of the workflow, or those of on_failure."""

    def __init__(self, steps: Sequence[StepDefinition], states: Mapping[str, StepState] | None) -> None:
        self._steps = steps
        self._states = {step.id: (states or {}).get(step.id, PENDING) for step in steps} if states is not None else None
        self._pills = {step.id: list(_pills(step, self._states)) for step in steps}
        self._layout: Layout = layout(
            {step.id: step.needs for step in steps}, {step.id: self._size(step) for step in steps}
        )
        self.width, self.height = self._layout.width, self._layout.height

    def _size(self, step: StepDefinition) -> Size:
        pills = self._pills[step.id]
        widths = (
            text_width(step.id, NAME_SIZE, TextStyle.BOLD),
            text_width(step.kind, KIND_SIZE, TextStyle.CODE),
            sum(pill.width for pill in pills) + PILL_GAP * (len(pills) - 1),
        )
        width = min(MAX_WIDTH, max(MIN_WIDTH, 2 * PADDING + max(widths)))
        return Size(width, 78.0 if pills else 54.0, 0.0 if step.for_each is None else 2 * STACK)

    def drawn(self, style: str, x: float, y: float) -> Iterator[str]:
        yield f'<g class="{style}" transform="translate({x:.0f} {y:.0f})">'
        for line in self._layout.lines:
            yield from _line(line, self._states)
        for step in self._steps:
            yield from self._box(step, self._layout.boxes[step.id])
        yield "</g>"

    def _box(self, step: StepDefinition, box: StepBox) -> Iterator[str]:
        state = f" {self._states[step.id].status}" if self._states is not None else ""
        yield f'<g class="step{state}" transform="translate({box.x:.1f} {box.y:.1f})">'
        yield f"<title>{escaped(_tooltip(step, self._states))}</title>"
        if step.for_each is not None:
            for offset in (2 * STACK, STACK):
                yield (
                    f'<rect class="card" x="{offset:g}" y="{offset:g}" width="{box.width:.1f}"'
                    f' height="{box.height:.1f}" rx="9"/>'
                )
        yield f'<rect class="card" width="{box.width:.1f}" height="{box.height:.1f}" rx="9"/>'
        room = box.width - 2 * PADDING
        name = fitted(step.id, room, NAME_SIZE, TextStyle.BOLD)
        kind = fitted(step.kind, room, KIND_SIZE, TextStyle.CODE)
        yield f'<text class="ink" x="{PADDING:g}" y="23" font-size="14" font-weight="600">{escaped(name)}</text>'
        yield f'<text class="soft code" x="{PADDING:g}" y="41" font-size="12">{escaped(kind)}</text>'
        x = PADDING
        for pill in self._pills[step.id]:
            yield from _pill(pill, x, 51.0)
            x += pill.width + PILL_GAP
        yield "</g>"


def _pills(step: StepDefinition, states: Mapping[str, StepState] | None) -> Iterator[_Badge]:
    if states is not None:
        status = str(states[step.id].status)
        yield _Badge(status, "state", status)
    if step.for_each is not None:
        yield _Badge(f"for each, {step.at_most} at a time", "note")
    if step.when is not None and states is None:
        yield _Badge("when", "note")


def _pill(pill: _Badge, x: float, y: float) -> Iterator[str]:
    yield f'<g class="pill {pill.style}" transform="translate({x:.1f} {y:g})">'
    yield f'<rect width="{pill.width:.1f}" height="{PILL_HEIGHT:g}" rx="9"/>'
    if pill.icon:
        yield f'<path d="{ICONS[pill.icon]}"/>'
    left = PILL_PADDING + (ICON if pill.icon else 0.0)
    yield f'<text x="{left:g}" y="12.8" font-size="11">{escaped(pill.text)}</text>'
    yield "</g>"


def _line(line: Edge, states: Mapping[str, StepState] | None) -> Iterator[str]:
    """A curve that is horizontal at each of its points, and an arrow at its end."""
    (x, y), *passed, (end_x, end_y) = line.points
    path = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in [*passed, (end_x - ARROW, end_y)]:
        middle = (x + next_x) / 2
        is_straight = abs(y - next_y) < 0.1
        curve = f"C{middle:.1f} {y:.1f} {middle:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}"
        path.append(f"H{next_x:.1f}" if is_straight else curve)
        x, y = next_x, next_y
    is_done = states is not None and states[line.start].status is StepStatus.COMPLETED
    done = " done" if is_done else ""
    yield f'<path class="line{done}" d="{"".join(path)}"/>'
    yield f'<path class="head{done}" d="M{end_x:.1f} {end_y:.1f}l-{ARROW + 1:g} -4.5v9z"/>'


def _lane_frame(x: float, y: float, width: float, height: float) -> Iterator[str]:
    yield f'<rect class="lane" x="{x:g}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="12"/>'
    yield (
        f'<text class="soft" x="{x + LANE_PADDING:g}" y="{y + LANE_PADDING + 10:.1f}" font-size="12"'
        ' font-weight="600">on failure</text>'
    )


def _tooltip(step: StepDefinition, states: Mapping[str, StepState] | None) -> str:
    lines = [f"{step.id} ({step.kind})"]
    if step.description:
        lines.append(step.description)
    if step.when is not None:
        lines.append(f"when {as_text(step.when)}")
    if states is not None:
        state = states[step.id]
        lines.append(f"{state.status}: {state.reason}" if state.reason else str(state.status))
    return "; ".join(lines)


def _description(definition: WorkflowDefinition, states: Mapping[str, StepState] | None) -> str:
    def steps(some: Iterable[StepDefinition]) -> Iterator[str]:
        for step in some:
            needs = f" after {', '.join(step.needs)}" if step.needs else ""
            state = f", {states.get(step.id, PENDING).status}" if states is not None else ""
            yield f"{step.id}{needs}{state}"

    found = f"{counted(len(definition.steps), 'step')}: {'; '.join(steps(definition.steps))}."
    if definition.on_failure:
        found += f" On failure: {'; '.join(steps(definition.on_failure))}."
    return found
