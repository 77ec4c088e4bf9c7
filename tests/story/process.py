"""Settings of a process of a story, and its start."""

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

SETTINGS_VARIABLE = "STORY_SETTINGS"
PR_SET_PDEATHSIG = 1


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    store: str  # its URL
    journal: str  # the file of this process's history
    flags: str
    count: int = 0  # how often a script repeats its work; 0: until stopped
    role: str = "scheduler"  # what a process pool runs: scheduler or worker
    clocks: tuple[float, ...] = ()  # by how many seconds the clocks of its processes are wrong
    concurrency: int = 8  # of the workers of a pool
    lease_seconds: float = 15.0
    polls: bool = True  # false: a worker that must be woken for each job
    obeys_kill_orders: bool = False  # a worker dies where a job's payload says: see `KillingStore`


def read_settings() -> ProcessSettings:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if sys.platform == "linux":
        # The process must not outlive a test run that is killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return msgspec.json.decode(os.environ[SETTINGS_VARIABLE], type=ProcessSettings)


def begin() -> tuple[ProcessSettings, Jobyard]:
    settings = read_settings()
    yard = Jobyard(store=RecordingStore(make_store(settings.store), settings.journal))
    declare(yard, Path(settings.flags))
    return settings, yard
