"""Brings back files that a program left: below its folder, through no link, regular files only."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from jobyard.sandbox.daemon.box import pid_of
from jobyard.sandbox.daemon.inside import kernel
from jobyard.sandbox.daemon.inside.protocol import PROGRAM_FOLDER

_MOST_FILES = 64


@dataclass
class CollectedFiles:
    files: dict[int, bytes] = field(default_factory=dict)  # by the index of the name
    notes: dict[int, str] = field(default_factory=dict)


def collect(folder: int, names: tuple[str, ...], most_bytes: int) -> CollectedFiles:
    """Once every process of the program is gone. What is not brought is noted, with the reason."""
    found = CollectedFiles()
    left = most_bytes
    for index, name in enumerate(names):
        if index >= _MOST_FILES:
            found.notes[index] = f"only {_MOST_FILES} files are brought"
            continue
        try:
            data = _bring(folder, name, left)
        except (OSError, ValueError) as error:
            found.notes[index] = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            continue
        found.files[index] = data
        left -= len(data)
    return found


def _bring(folder: int, name: str, most: int) -> bytes:
    encoded = name.encode()
    if b"\0" in encoded:
        raise ValueError("it holds a zero byte")
    # Not blocking: a FIFO would wait for its other end.
    descriptor = kernel.open_beneath(folder, encoded, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("not a regular file")
        if about.st_size > most:
            raise ValueError(f"{about.st_size} bytes; {most} are left of what may be brought")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def folder_of(pidfd: int) -> int:
    """The working folder of a process that has not seen its program yet."""
    pid = pid_of(pidfd)
    where = f"/proc/{pid}/cwd"
    if os.readlink(where) != PROGRAM_FOLDER:  # noqa: PTH115
        raise OSError(f"the program is not in {PROGRAM_FOLDER}")  # nothing is ever brought from anywhere else
    return os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
