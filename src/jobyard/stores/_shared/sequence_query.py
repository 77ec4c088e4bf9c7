"""A query of the sequences of jobs, as the SQL stores choose one for a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class SequenceQuery(NamedTuple):
    """Selects sequences, named s."""

    query: str
    parameters: Sequence[Any] = ()
