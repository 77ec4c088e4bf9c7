"""A suggestion for a misspelt keyword argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from jobyard.errors import BadOption, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Raise BadOption with a suggestion, as `@yard.job` does, instead of TypeError."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs.keys() - known:
            raise BadOption(f"Unknown option {word} of {function.__name__}.{did_you_mean(word, known)}", option=word)
        return function(*args, **kwargs)

    return call
