"""The init brings back the files that were asked for: below the folder, through no link, regular files only."""

from __future__ import annotations

import os
import stat

from jobyard.executors.sandbox.daemon.inside import kernel
from jobyard.executors.sandbox.daemon.inside import protocol as wire

_CHUNK = 64 << 10


def collect(status: int) -> None:
    """What to bring was written to the socket before the code was; nothing there means nothing is wanted."""
    os.set_blocking(status, False)
    try:
        head = os.read(status, wire.COLLECT_HEAD.size)
    except BlockingIOError:
        return
    os.set_blocking(status, True)
    if len(head) < wire.COLLECT_HEAD.size:
        return
    left, count = wire.COLLECT_HEAD.unpack(head)
    names = [_exactly(status, wire.COLLECT_NAME.unpack(_exactly(status, 4))[0]) for _ in range(count)]
    folder = os.open(wire.PROGRAM_FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    for index, name in enumerate(names):
        left -= _bring(status, folder, index, name, left)
    _say(status, wire.END, b"")


def _bring(status: int, folder: int, index: int, name: bytes, left: int) -> int:
    number = wire.INDEX.pack(index)
    try:
        # Not blocking: a FIFO would wait for its other end.
        descriptor = kernel.open_beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        _say(status, wire.NOTE, number + os.strerror(error.errno or 0).encode())
        return 0
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            _say(status, wire.NOTE, number + b"not a regular file")
            return 0
        if about.st_size > left:
            _say(status, wire.NOTE, number + f"{about.st_size} bytes; {left} are left of what may be brought".encode())
            return 0
        _say(status, wire.FILE_HEAD, number)
        taken = 0
        while taken < left and (data := os.read(descriptor, min(_CHUNK, left - taken))):
            _say(status, wire.FILE_DATA, data)
            taken += len(data)
        return taken
    finally:
        os.close(descriptor)


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _say(status: int, what: bytes, body: bytes) -> None:
    data = memoryview(wire.STATUS_HEAD.pack(what, len(body)) + body)
    while data:
        data = data[os.write(status, data) :]
