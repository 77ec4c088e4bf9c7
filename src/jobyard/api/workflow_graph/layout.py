"""A layered layout: steps in columns from left to right, each after all that it needs, with few crossings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jobyard.domain.workflow_files.graph import StepGraph

_SWEEPS = 13
COLUMN_GAP = 56.0
ROW_GAP = 22.0
# Between lines that pass through a column beside each other.
LINE_GAP = 16.0
# Long lines are led around the boxes by points in each column; in a huge graph that would take too long.
_MAX_POINTS = 20_000


class Size(NamedTuple):
    width: float
    height: float
    stack: float = 0.0  # how far the cards behind it stand out, to the right and below


class StepBox(NamedTuple):
    """The place of a step; its left upper corner."""

    x: float
    y: float
    width: float
    height: float


class Edge(NamedTuple):
    """From one step to another that needs it; it is horizontal at each point."""

    start: str
    end: str
    points: tuple[tuple[float, float], ...]


class Layout(NamedTuple):
    boxes: Mapping[str, StepBox]
    lines: Sequence[Edge]
    width: float
    height: float


class _Node:
    """A step, or a point that leads a long line through a column."""

    def __init__(self, step: str | None, size: Size) -> None:
        self.step = step
        self.width, self.height, self.stack = size
        self.before: list[_Node] = []
        self.after: list[_Node] = []
        self.x = self.y = 0.0  # of its centre
        self.position = 0
        self.column_width = 0.0


def layout(needs: Mapping[str, Sequence[str]], sizes: Mapping[str, Size]) -> Layout:
    """Places for steps without cycles; `needs` is in the order of the file."""
    reduced = _without_redundant(needs)
    columns, chains = _columns(reduced, sizes)
    _reduce_crossings(columns)
    _place(columns)
    nodes = [node for column in columns for node in column]
    top = min((node.y - node.height / 2 for node in nodes), default=0.0)
    for node in nodes:
        node.y -= top
    boxes = {
        node.step: StepBox(node.x - node.width / 2, node.y - node.height / 2, node.width, node.height)
        for node in nodes
        if node.step is not None
    }
    lines = [Edge(start, end, _points(chain)) for (start, end), chain in chains.items()]
    return Layout(
        {step: boxes[step] for step in needs},
        lines,
        max((node.x + node.width / 2 + node.stack for node in nodes), default=0.0),
        max((node.y + node.height / 2 + node.stack for node in nodes), default=0.0),
    )


def _without_redundant(needs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Needs without those that another need implies: their edges would be redundant.

    >>> _without_redundant({"a": [], "b": ["a"], "c": ["a", "b"]})
    {'a': [], 'b': ['a'], 'c': ['b']}
    """
    graph = StepGraph(needs)
    before = {step: graph.before(step) for step in needs}
    return {
        step: [need for need in each if not any(need in before[other] for other in each)]
        for step, each in needs.items()
    }


Chains = dict[tuple[str, str], list[_Node]]


def _columns(needs: Mapping[str, Sequence[str]], sizes: Mapping[str, Size]) -> tuple[list[list[_Node]], Chains]:
    depth: dict[str, int] = {}
    for step in StepGraph(needs).order:
        depth[step] = 1 + max((depth[need] for need in needs[step]), default=-1)
    columns: list[list[_Node]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    nodes: dict[str, _Node] = {}
    for step in needs:
        nodes[step] = _Node(step, sizes[step])
        columns[depth[step]].append(nodes[step])
    points = sum(depth[step] - depth[need] - 1 for step, each in needs.items() for need in each)
    chains: Chains = {}
    for step, each in needs.items():
        for need in each:
            chain = [nodes[need]]
            for column in range(depth[need] + 1, depth[step]) if points <= _MAX_POINTS else ():
                chain.append(_Node(None, Size(0.0, 0.0)))
                columns[column].append(chain[-1])
            chain.append(nodes[step])
            for left, right in pairwise(chain):
                left.after.append(right)
                right.before.append(left)
            chains[need, step] = chain
    return columns, chains


def _reduce_crossings(columns: list[list[_Node]]) -> None:
    """Order each column by the mean position of its neighbours, to and fro, and keep the best order."""
    _number(columns)
    best = [list(column) for column in columns]
    fewest = _crossings(columns)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        is_forward = sweep % 2 == 0
        for column in columns[1:] if is_forward else columns[-2::-1]:
            column.sort(key=lambda node: _mean_position(node, node.before if is_forward else node.after))
            for position, node in enumerate(column):
                node.position = position
        crossings = _crossings(columns)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    for column, order in zip(columns, best, strict=True):
        column[:] = order
    _number(columns)


def _number(columns: list[list[_Node]]) -> None:
    for column in columns:
        for position, node in enumerate(column):
            node.position = position


def _mean_position(node: _Node, neighbours: Sequence[_Node]) -> float:
    return sum(each.position for each in neighbours) / len(neighbours) if neighbours else float(node.position)


def _crossings(columns: list[list[_Node]]) -> int:
    """The number of pairs of lines that cross, counted column by column with a tree of sums."""
    total = 0
    for column in columns:
        ends = [right.position for node in column for right in sorted(node.after, key=lambda each: each.position)]
        size = max(ends, default=0) + 1
        tree = [0] * (size + 1)
        for seen, end in enumerate(ends):
            total += seen - _sum(tree, end + 1)
            index = end + 1
            while index <= size:
                tree[index] += 1
                index += index & -index
    return total


def _sum(tree: list[int], index: int) -> int:
    found = 0
    while index > 0:
        found += tree[index]
        index -= index & -index
    return found


def _place(columns: list[list[_Node]]) -> None:
    left = 0.0
    for column in columns:
        width = max((node.width for node in column), default=0.0)
        y = 0.0
        for above, node in zip([None, *column], column, strict=False):
            y += _distance(above, node) if above is not None else 0.0
            node.x, node.y = left + width / 2, y
            node.column_width = width
            if node.step is not None:
                node.width = width  # boxes of a column are equally wide
        left += width + COLUMN_GAP + max((node.stack for node in column), default=0.0)
    for sweep in range(_SWEEPS):
        # The first and the last sweep go forward: a step stands beside those that it needs.
        is_forward = sweep % 2 == 0
        for column in columns if is_forward else columns[::-1]:
            _align(column, [_wish(node, is_forward) for node in column])


def _wish(node: _Node, is_forward: bool) -> float:
    neighbours = (node.before if is_forward else node.after) or node.before or node.after
    return sum(each.y for each in neighbours) / len(neighbours) if neighbours else node.y


def _distance(above: _Node, below: _Node) -> float:
    gap = LINE_GAP if above.step is None and below.step is None else ROW_GAP
    return above.height / 2 + above.stack + gap + below.height / 2


def _align(column: list[_Node], wishes: list[float]) -> None:
    """Move nodes as near to their wishes as their order and distances allow (least squares).

    With the distances subtracted, neighbours that would overlap form a block at the mean of their wishes.
    """
    offsets = [0.0]
    for above, below in pairwise(column):
        offsets.append(offsets[-1] + _distance(above, below))
    blocks: list[tuple[float, int]] = []  # the sum of wishes, and how many
    for wish, offset in zip(wishes, offsets, strict=False):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for node, mean, offset in zip(column, means, offsets, strict=False):
        node.y = mean + offset


def _points(chain: list[_Node]) -> tuple[tuple[float, float], ...]:
    """Where the line leaves the first step, enters and leaves each column that it passes, and reaches the last step."""
    first, *passed, last = chain
    points = [(first.x + first.width / 2 + first.stack, first.y)]
    for node in passed:
        points += [(node.x - node.column_width / 2, node.y), (node.x + node.column_width / 2, node.y)]
    return *points, (last.x - last.width / 2, last.y)
