"""The graph of a workflow file: a well-formed image that shows every step, its state, and what it needs."""

from __future__ import annotations

import re
import time
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.workflow_files.support import SCAN, Document, parsed

from jobyard.api.workflow_graph.layout import Layout, Size, layout
from jobyard.api.workflow_graph.style import ICONS, STYLE
from jobyard.api.workflow_graph.svg import render_graph
from jobyard.api.workflow_graph.text import TextStyle, escaped, fitted, text_width
from jobyard.domain.workflow_files.step_state import RUNNING, StepState, StepStatus, completed, failed

SVG = "{http://www.w3.org/2000/svg}"


def workflow(*steps: Document, **words: Any) -> Any:
    return parsed({"id": "w", "steps": [{"kind": "k", **step} for step in steps], **words})


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_it_shows_each_step_with_its_kind_and_marks() -> None:
    svg = render_graph(parsed(SCAN))
    shown = texts(svg)
    assert shown[0] == "scanversion 3"
    assert {"extract", "extract_urls", "scan", "scan_product", "store", "on failure", "notify"} <= {*shown}
    assert "for each, 5 at a time" in shown and "when" in shown
    assert not {*shown} & {*map(str, StepStatus)}
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", "Steps of the workflow scan")
    assert root.findtext(f"{SVG}desc") == (
        "3 steps: extract; scan after extract; store after scan. On failure: notify."
    )


def test_the_state_of_a_step_is_a_word_and_an_icon_beside_its_colour() -> None:
    svg = render_graph(parsed(SCAN), {"extract": completed(), "scan": failed('a < b & "c"'), "store": RUNNING})
    root = ElementTree.fromstring(svg)
    steps = {
        each.findtext(f"{SVG}title", "").split()[0]: each
        for each in root.iter(f"{SVG}g")
        if each.find(f"{SVG}title") is not None
    }
    words = {name: [*step.iter(f"{SVG}text")][2].text for name, step in steps.items()}
    assert words == {"extract": "completed", "scan": "failed", "store": "running", "notify": "pending"}
    for name, step in steps.items():
        assert step.get("class") == f"step {words[name]}"
        assert ICONS[str(words[name])] in [path.get("d") for path in step.iter(f"{SVG}path")]
    assert 'failed: a < b & "c"' in steps["scan"].findtext(f"{SVG}title", "")
    assert set(ICONS) == {*map(str, StepStatus)}
    lines = [each.get("class") for each in root.iter(f"{SVG}path") if (each.get("class") or "").startswith("line")]
    assert lines == ["line done", "line"]


def test_on_failure_steps_stand_apart_with_dashes() -> None:
    svg = render_graph(parsed(SCAN))
    [lane] = [each for each in ElementTree.fromstring(svg).iter(f"{SVG}g") if each.get("class") == "cleanup"]
    assert [text.text for text in lane.iter(f"{SVG}text")] == ["notify", "notify"]
    assert ".workflow-graph .cleanup .card{stroke-dasharray" in svg
    assert "cleanup" not in render_graph(workflow({"id": "a"})).replace(STYLE, "")


def test_hostile_text_is_escaped() -> None:
    kind = '<script>alert("x")</script>&]]>'
    svg = render_graph(workflow({"id": "a", "kind": kind, "description": "\u202e\u2028 --> </title>"}))
    assert "<script" not in svg
    assert "</title> (" not in svg
    assert kind in texts(svg)


@given(st.text())
def test_any_text_can_stand_in_xml(text: str) -> None:
    document = f'<a b="{escaped(text)}">{escaped(text)}</a>'
    found = ElementTree.fromstring(document)
    assert found.text is None or found.get("b") == found.text


@given(st.text(max_size=60), st.floats(20, 400), st.sampled_from(TextStyle))
def test_cut_text_fits(text: str, width: float, face: TextStyle) -> None:
    found = fitted(text, width, 12, face)
    assert text_width(found, 12, face) <= width or found == "…"
    assert found == text or found.endswith("…")


def colours(theme: str) -> dict[str, str]:
    found = re.findall(r"\.workflow-graph ([^{]+)\{(?:[^}]*;)?fill:(#\w+)", theme)
    return dict(found)


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", STYLE.split("@media (prefers-color-scheme: dark)"), ids=["light", "dark"])
def test_text_is_readable_in_both_themes(theme: str) -> None:
    found = colours(theme)
    pairs = [(".ink", ".card"), (".soft", ".card"), (".soft", ".page"), (".note text", ".note rect")]
    pairs += [(f".{status} .state text", f".{status} .state rect") for status in StepStatus]
    for text, behind in pairs:
        lighter, darker = sorted((luminance(found[text]), luminance(found[behind])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, behind)  # WCAG 2, level AA


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    count = draw(st.integers(1, 15))
    found = {}
    for n in range(count):
        before = [f"s{m}" for m in range(n)]
        found[f"s{n}"] = draw(st.lists(st.sampled_from(before), unique=True, max_size=4)) if before else []
    order = draw(st.permutations(sorted(found)))
    return {step: found[step] for step in order}


def placed(needs: dict[str, list[str]]) -> Layout:
    sizes = [Size(100, 50), Size(160, 78, 10), Size(132, 54)]
    return layout(needs, {step: sizes[number % 3] for number, step in enumerate(sorted(needs))})


@given(graphs())
def test_boxes_do_not_overlap_and_lines_lead_to_the_right(needs: dict[str, list[str]]) -> None:
    found = placed(needs)
    boxes = list(found.boxes.values())
    for index, one in enumerate(boxes):
        assert one.x >= 0 and one.y >= -0.01
        assert one.x + one.width <= found.width and one.y + one.height <= found.height + 0.01
        for other in boxes[index + 1 :]:
            is_beside = one.x + one.width < other.x or other.x + other.width < one.x
            is_apart = one.y + one.height < other.y or other.y + other.height < one.y
            assert is_beside or is_apart
    for step, each in needs.items():
        for need in each:
            assert found.boxes[need].x + found.boxes[need].width < found.boxes[step].x
    for line in found.lines:
        x = [point[0] for point in line.points]
        assert x == sorted(x)
        # A line passes columns between their boxes, not through them.
        for (left, y), (right, _) in zip(line.points[1:-1:2], line.points[2:-1:2], strict=True):
            for box in boxes:
                assert box.x + box.width <= left or box.x >= right or not box.y < y < box.y + box.height


@given(graphs())
def test_lines_show_all_needs_also_indirectly(needs: dict[str, list[str]]) -> None:
    def reach(direct: dict[str, set[str]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}

        def of(step: str) -> set[str]:
            if step not in found:
                found[step] = set().union(direct[step], *map(of, direct[step]))
            return found[step]

        return {step: of(step) for step in direct}

    drawn: dict[str, set[str]] = {step: set() for step in needs}
    for line in placed(needs).lines:
        drawn[line.end].add(line.start)
    assert all(drawn[step] <= set(needs[step]) for step in needs)
    assert reach(drawn) == reach({step: set(each) for step, each in needs.items()})


@given(graphs(), st.dictionaries(st.sampled_from([f"s{n}" for n in range(15)]), st.sampled_from(StepStatus)))
def test_every_graph_is_well_formed_and_the_same_each_time(needs: dict[str, list[str]], states: Any) -> None:
    definition = workflow(*({"id": step, "needs": each} for step, each in needs.items()))
    known = {step: StepState(status) for step, status in states.items()}
    svg = render_graph(definition, known)
    assert ElementTree.fromstring(svg) is not None
    assert render_graph(definition, known) == svg


def test_crossings_are_avoided_where_they_can_be() -> None:
    found = placed({"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]}).boxes
    middle = {step: box.y + box.height / 2 for step, box in found.items()}
    assert [middle[step] for step in "abc"] == sorted(middle[step] for step in "abc")
    assert [middle[step] for step in "abc"] == pytest.approx([middle[step] for step in "zyx"], abs=0.1)


@pytest.mark.parametrize("shape", ["chain", "wide", "long lines"])
def test_a_graph_of_very_many_steps_is_drawn_soon(shape: str) -> None:
    count = 1000
    steps: list[Document]
    if shape == "chain":
        steps = [{"id": f"s{n}", "needs": [f"s{n - 1}"] if n else []} for n in range(count)]
    elif shape == "wide":
        steps = [{"id": "a"}, *({"id": f"s{n}", "needs": ["a"]} for n in range(count))]
    else:
        chain: list[Document] = [{"id": f"s{n}", "needs": [f"s{n - 1}"] if n else []} for n in range(count // 2)]
        others: list[Document] = [{"id": f"o{n}"} for n in range(count // 2)]
        steps = [*chain, *others, {"id": "end", "needs": [f"s{count // 2 - 1}", *(f"o{n}" for n in range(count // 2))]}]
    definition = workflow(*steps)
    began = time.process_time()
    assert render_graph(definition).count('class="step"') == len(steps)
    assert time.process_time() - began < 10  # 0.5 s is usual
