"""A clock that a test turns by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TurnedByHand(Protocol):
    """It says when it is turned, until the answer of `subscribe` is called."""

    def now(self) -> int: ...
    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]: ...
