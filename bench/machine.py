"""Where it was measured: without the disk's sync time a power-safe figure says little."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import msgspec

IN_MEMORY = {"tmpfs", "ramfs"}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    processor: str
    cores: int
    load_before: float  # one-minute average; well above 0 means that others were at work too
    system: str
    python: str
    sqlite: str
    uvloop: bool
    folder: str
    filesystem: str
    fdatasync_us: float

    @property
    def warnings(self) -> list[str]:
        found = []
        if self.filesystem in IN_MEMORY:
            found.append(f"{self.folder} is in memory, so power-safe costs nothing here: set TMPDIR to a real disk.")
        if self.load_before > 0.5:
            found.append(f"The machine was busy (load {self.load_before:.1f}): trust the ratios, not the rates.")
        return found


def examine() -> Machine:
    folder = Path(tempfile.gettempdir()).resolve()
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        load_before=os.getloadavg()[0],
        system=platform.platform(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        uvloop=find_spec("uvloop") is not None,
        folder=str(folder),
        filesystem=_filesystem(folder),
        fdatasync_us=_fdatasync_us(),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _filesystem(folder: Path) -> str:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    holding = [(len(fields[1]), fields[2]) for fields in mounts if folder.is_relative_to(fields[1])]
    return max(holding)[1] if holding else "unknown"


def _fdatasync_us(samples: int = 50) -> float:
    block = os.urandom(8192)
    times = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(samples):
            file.write(block)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return median(times) * 1e6
