"""Collection of a program's output files: regular files below its folder, never through a link."""

from __future__ import annotations

import os
import stat

from jobyard.sandbox.daemon.box import pid_of
from jobyard.sandbox.daemon.inside import kernel
from jobyard.sandbox.daemon.inside.protocol import PROGRAM_FOLDER

_MAX_FILES = 64


def collect(folder: int, names: tuple[str, ...], max_bytes: int) -> tuple[dict[int, bytes], dict[int, str]]:
    """Read the files after every process of the program has ended, and note why a file is left out; both by index."""
    files: dict[int, bytes] = {}
    notes: dict[int, str] = {}
    left = max_bytes
    for index, name in enumerate(names):
        if index >= _MAX_FILES:
            notes[index] = f"at most {_MAX_FILES} files are returned"
            continue
        try:
            data = _read_file(folder, name, left)
        except (OSError, ValueError) as error:
            notes[index] = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            continue
        files[index] = data
        left -= len(data)
    return files, notes


def _read_file(folder: int, name: str, max_bytes: int) -> bytes:
    encoded = name.encode()
    if b"\0" in encoded:
        raise ValueError("the name contains NUL")
    # O_NONBLOCK: opening a FIFO would wait for its other end.
    descriptor = kernel.open_beneath(folder, encoded, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("not a regular file")
        if info.st_size > max_bytes:
            raise ValueError(f"too large: {info.st_size} bytes, {max_bytes} left")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(descriptor)


def program_folder(pidfd: int) -> int:
    """Open the working folder of a process that has not received its program yet."""
    pid = pid_of(pidfd)
    where = f"/proc/{pid}/cwd"
    if os.readlink(where) != PROGRAM_FOLDER:  # noqa: PTH115
        raise OSError(f"the program is not in {PROGRAM_FOLDER}")  # never read from any other folder
    return os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
