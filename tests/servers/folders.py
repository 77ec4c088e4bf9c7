"""Folders of servers: in memory where there is room, and swept when their owner was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 2 << 30
PREFIX = "jobyard-server-"


def new_folder(name: str, *, on_disk: bool = False) -> Path:
    """What a killed server wrote outlives it in memory as well, and a busy disk cannot make a test late."""
    base = Path(tempfile.gettempdir())
    if not on_disk and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        base = MEMORY
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-{name}-", dir=base))
    folder.chmod(0o711)  # the server may run as another user, who must pass through
    return folder


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


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
