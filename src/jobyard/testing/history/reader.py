"""Reader of the recorded calls and responses of all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from jobyard.testing.history import events as e

Q = TypeVar("Q", bound=e.Request)
A = TypeVar("A", bound=e.Response)

NEVER = 1 << 62  # the end of a call without a response: it may take effect at any time, or never


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """A call that took effect between `begin` and `end`; without a response, perhaps never."""

    request: e.Request
    begin: int
    response: e.Response | None = None
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

    def select(self, request: type[Q], response: type[A]) -> Iterator[tuple[RecordedOperation, Q, A | None]]:
        """Operations that took effect, or (with None as the response) may have."""
        for operation in self.operations:
            if isinstance(operation.request, request):
                if isinstance(operation.response, response):
                    yield operation, operation.request, operation.response
                elif operation.response is None:
                    yield operation, operation.request, None

    def _read_file(self, path: Path) -> None:
        decoder: msgspec.json.Decoder[e.Line] = msgspec.json.Decoder(e.Line)
        calls: dict[int, e.RecordedCall] = {}
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
                    self._add_unanswered(calls)
                    self.processes += 1
                case e.RecordedCall(call):
                    calls[call] = line
                case e.RecordedResult(call, at, response):
                    self._pair(calls.pop(call), at, response)
        self._add_unanswered(calls)

    def _pair(self, calls: e.RecordedCall, at: int, response: e.Response) -> None:
        if isinstance(response, e.RecordedError):
            if not response.nothing_happened:
                self.operations.append(RecordedOperation(calls.request, calls.at))
            return
        self.operations.append(RecordedOperation(calls.request, calls.at, response, at))

    def _add_unanswered(self, calls: dict[int, e.RecordedCall]) -> None:
        self.operations += [RecordedOperation(line.request, line.at) for line in calls.values()]
        calls.clear()


def _broken(path: Path, number: int) -> ValueError:
    return ValueError(f"{path}:{number}: invalid history line. Only the last line of a process may be incomplete.")
