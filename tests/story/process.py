"""What every process of a story is told, and how it begins."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec
from tests.story.app import declare

from jobyard import Jobyard
from jobyard.config.store_factory import make_store
from jobyard.testing.history import RecordingStore

ORDERS_VARIABLE = "STORY_ORDERS"
PR_SET_PDEATHSIG = 1


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    store: str  # its URL
    journal: str  # the file of this process's history
    marks: str
    count: int = 0  # for scripts that do something so many times; 0: until stopped
    role: str = "scheduler"  # what is raised in a nursery: schedulers or workers
    clocks: tuple[float, ...] = ()  # by how many seconds the clocks of its processes are wrong


def read_orders() -> Orders:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if sys.platform == "linux":
        # Nobody is left behind when the tests themselves are killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return msgspec.json.decode(os.environ[ORDERS_VARIABLE], type=Orders)


def begin() -> tuple[Orders, Jobyard]:
    orders = read_orders()
    yard = Jobyard(store=RecordingStore(make_store(orders.store), orders.journal))
    declare(yard, Path(orders.marks))
    return orders, yard
