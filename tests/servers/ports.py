"""Ports for servers that start later and must know their port before."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the ports that systems give to connections and to servers without a port of their own: between the choice of
# a port and the start of its server, one of the many other processes of a test run would be given it.
RANGE = range(10_240, 32_768)
_reserved: list[int] = []  # descriptors of the locks: each holds its port until this process ends


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row, which no other test process is given either."""
    while True:
        first = random.choice(RANGE[:-count])
        if all(_reserve(first + more) for more in range(count)):
            return first


def _reserve(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / "jobyard-test-ports"
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        os.close(lock)
        return False
    _reserved.append(lock)
    return True
