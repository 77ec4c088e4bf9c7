"""Cgroups delegated to an unprivileged user, as a service manager does."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.sandbox.unprivileged import USER
from tests.support import PATIENCE_SECONDS

TOP = Path("/sys/fs/cgroup")
NEEDED = ("memory", "pids", "cpu", "cpuacct")
# Prefix of a command: joins the cgroups, then executes the rest.
JOIN = 'for group in $TEST_CGROUPS; do echo $$ > "$group/cgroup.procs" || exit 96; done; exec "$@"'


def possible() -> bool:
    if os.geteuid() != 0:
        return False
    if all(os.access(TOP / name / "cgroup.procs", os.W_OK) for name in NEEDED):
        return True
    controllers = TOP / "cgroup.controllers"
    return controllers.exists() and {"memory", "pids", "cpu"} <= set(controllers.read_text().split())


@contextmanager
def delegated() -> Iterator[list[str]]:
    """Create cgroups and yield their folders. Processes in them must have ended at exit."""
    name = f"tests-of-jobyard-{secrets.token_hex(4)}"
    tops = [TOP / each for each in NEEDED] if (TOP / "memory" / "cgroup.procs").exists() else [TOP]
    folders = [top / name for top in tops]
    for folder in folders:
        folder.mkdir()
        for path in (folder, *(folder / each for each in ("cgroup.procs", "tasks", "cgroup.subtree_control"))):
            with suppress(FileNotFoundError):
                os.chown(path, USER, USER)
    try:
        yield [str(folder) for folder in folders]
    finally:
        for folder in folders:
            _remove(folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while folder.exists():
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()
        if time.monotonic() > deadline:
            raise AssertionError(f"{folder} is still in use")
        time.sleep(0.01)
