"""What every process of a story is told, and how it begins: `python -m tests.story.<script> '<orders>'`."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
from pathlib import Path

import msgspec
from tests.story.app import declare

from jobyard import Jobyard
from jobyard.stores.sqlite import SqliteStore
from jobyard.testing.history import RecordingStore

PR_SET_PDEATHSIG = 1


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    database: str
    journal: str  # the file of this process's history
    marks: str
    concurrency: int = 4
    lease_seconds: float = 15.0
    shutdown_timeout: float = 30.0
    queues: tuple[str, ...] = ()
    count: int = 0  # for scripts that do something so many times; 0: until stopped


def begin() -> tuple[Orders, Jobyard]:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if sys.platform == "linux":
        # Nobody is left behind when the tests themselves are killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    yard = Jobyard(store=RecordingStore(SqliteStore(orders.database), orders.journal))
    declare(yard, Path(orders.marks))
    return orders, yard
