"""Who a worker is: a name that no other worker has."""

from __future__ import annotations

import os
import random
import socket


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{random.getrandbits(24):06x}"
