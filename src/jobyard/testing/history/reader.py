"""Reads the recorded calls and responses of all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from jobyard.testing.history import events as e

Q = TypeVar("Q", bound=e.Question)
A = TypeVar("A", bound=e.Answer)

NEVER = 1 << 62  # the end of a bracket whose answer was never seen: the effect may come at any time, or not at all


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """One verb: it took effect between `begin` and `end`; without an answer perhaps never."""

    question: e.Question
    begin: int
    answer: e.Answer | None = None
    end: int = NEVER


@dataclass(slots=True)
class History:
    operations: list[RecordedOperation] = field(default_factory=list)
    processes: int = 0
    torn: int = 0  # lines cut off by a kill

    @classmethod
    def read(cls, paths: Iterable[Path | str]) -> History:
        history = cls()
        for path in paths:
            history._read_file(Path(path))
        return history

    def select(self, question: type[Q], answer: type[A]) -> Iterator[tuple[RecordedOperation, Q, A | None]]:
        """Operations that took effect, or may have: then the answer is None."""
        for operation in self.operations:
            if isinstance(operation.question, question):
                if isinstance(operation.answer, answer):
                    yield operation, operation.question, operation.answer
                elif operation.answer is None:
                    yield operation, operation.question, None

    def _read_file(self, path: Path) -> None:
        decoder: msgspec.json.Decoder[e.Line] = msgspec.json.Decoder(e.Line)
        asked: dict[int, e.RecordedCall] = {}
        torn_at = 0
        for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
            if not raw:
                continue
            try:
                line = decoder.decode(raw)
            except msgspec.DecodeError:
                if torn_at:
                    raise _broken(path, torn_at) from None
                torn_at = number
                self.torn += 1
                continue
            if torn_at and not isinstance(line, e.RecordingStarted):
                raise _broken(path, torn_at)
            torn_at = 0
            match line:
                case e.RecordingStarted():
                    self._give_up(asked)
                    self.processes += 1
                case e.RecordedCall(call):
                    asked[call] = line
                case e.RecordedResult(call, at, answer):
                    self._pair(asked.pop(call), at, answer)
        self._give_up(asked)

    def _pair(self, asked: e.RecordedCall, at: int, answer: e.Answer) -> None:
        if isinstance(answer, e.RecordedError):
            if not answer.nothing_happened:
                self.operations.append(RecordedOperation(asked.question, asked.at))
            return
        self.operations.append(RecordedOperation(asked.question, asked.at, answer, at))

    def _give_up(self, asked: dict[int, e.RecordedCall]) -> None:
        self.operations += [RecordedOperation(line.question, line.at) for line in asked.values()]
        asked.clear()


def _broken(path: Path, number: int) -> ValueError:
    return ValueError(f"{path}:{number}: invalid history line. Only the last line of a process may be incomplete.")
