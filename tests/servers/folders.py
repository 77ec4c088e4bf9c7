"""Folders of servers: in memory where there is room, and swept when their owner was killed."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 2 << 30
PREFIX = "jobyard-"  # short: tests put Unix sockets into such folders, and their paths have at most 107 characters
# Names the folder that the parts of one `make test` share. Not JOBYARD_…: commands warn about unknown ones.
RUN_VARIABLE = "TEST_RUN_FOLDER"


def new_folder(name: str, *, on_disk: bool = False, with_programs: bool = False) -> Path:
    """What a killed server wrote outlives it in memory as well, and a busy disk cannot make a test late."""
    is_on_disk = on_disk or not _has_room(MEMORY) or (with_programs and not _runs_programs(MEMORY))
    base = Path(tempfile.gettempdir()) if is_on_disk else MEMORY
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-{name}-", dir=base))
    folder.chmod(0o711)  # the server may run as another user, who must pass through
    return folder


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free > ENOUGH_BYTES


def _runs_programs(folder: Path) -> bool:
    """Containers mount their shared memory so that no program in it can be started."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def run_folder() -> Path:
    """For files that one part makes for all, and that live as long as the run; without a run, of this process."""
    shared = os.environ.get(RUN_VARIABLE)
    if shared:
        return Path(shared)
    folder = new_folder("run")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; others wait."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(base: Path) -> None:
    """The next test run removes what a killed one left behind."""
    for folder in base.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            if folder.is_mount():
                subprocess.run(["umount", "--lazy", str(folder)], check=False)
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
