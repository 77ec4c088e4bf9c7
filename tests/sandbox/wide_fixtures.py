"""Asynchronous contexts for fixtures that outlive the event loop of one test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_own_loop(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    loop = asyncio.new_event_loop()
    try:
        entered = loop.run_until_complete(context.__aenter__())
        try:
            yield entered
        finally:
            loop.run_until_complete(context.__aexit__(None, None, None))
    finally:
        loop.close()
