"""Clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class AdjustableClock(Protocol):
    """A clock that calls its subscribers when it is moved; elapsed real time does not move it."""

    def now(self) -> int: ...

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call `callback` after each move, until the returned function is called."""
        ...
