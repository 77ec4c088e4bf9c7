"""The graph of steps: cycles, and which steps have always ended before another one starts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping


class StepSet(Container[str]):
    """A set of steps as bits: a long chain of steps would need many large sets otherwise."""

    def __init__(self, positions: Mapping[str, int], bits: int) -> None:
        self._positions = positions
        self.bits = bits

    def __contains__(self, step: object) -> bool:
        position = self._positions.get(step) if isinstance(step, str) else None
        return position is not None and bool(self.bits >> position & 1)


class StepGraph:
    """Steps by id with the ids that each needs; ids that do not exist are ignored."""

    def __init__(self, needs: Mapping[str, Iterable[str]]) -> None:
        self._needs = {step: [each for each in found if each in needs] for step, found in needs.items()}
        self._positions = {step: position for position, step in enumerate(needs)}
        self.order = self._sorted()
        self._before = self._closure()

    def _sorted(self) -> list[str]:
        """Steps after all that they need, otherwise in the order of the file; steps of cycles are left out."""
        waiting = {step: len(found) for step, found in self._needs.items()}
        followers = self._followers()
        order = [step for step, count in waiting.items() if count == 0]
        for step in order:  # grows
            for follower in followers[step]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    order.append(follower)
        return order

    def _followers(self) -> dict[str, list[str]]:
        """The steps that need each step."""
        found: dict[str, list[str]] = {step: [] for step in self._needs}
        for step, needs in self._needs.items():
            for need in needs:
                found[need].append(step)
        return found

    def _closure(self) -> dict[str, int]:
        before: dict[str, int] = {}
        for step in self.order:
            bits = 0
            for need in self._needs[step]:
                bits |= before[need] | 1 << self._positions[need]
            before[step] = bits
        return before

    def before(self, step: str) -> StepSet:
        """The steps that it needs, also through others. In or after a cycle: all, to report the cycle alone."""
        return StepSet(self._positions, self._before.get(step, -1))

    def cycles(self) -> list[list[str]]:
        """Some cycles, such as ["a", "b", "a"] if a needs b and b needs a: at least one if there are any.

        >>> StepGraph({"a": ["b"], "b": ["a"], "c": ["c"], "d": ["a"]}).cycles()
        [['a', 'b', 'a'], ['c', 'c']]
        """
        ordered = set(self.order)
        remaining = [step for step in self._needs if step not in ordered]
        seen: set[str] = set()
        found = []
        for start in remaining:
            path: dict[str, None] = {}
            step = start
            # A step that could not be ordered needs at least one other of them, so the walk ends in a cycle.
            while step not in seen:
                seen.add(step)
                path[step] = None
                step = next(each for each in self._needs[step] if each not in ordered)
            if step in path:
                steps = list(path)
                found.append([*steps[steps.index(step) :], step])
        return found
