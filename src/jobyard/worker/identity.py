"""Worker names, unique among all workers."""

from __future__ import annotations

import os
import random
import socket


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{random.getrandbits(24):06x}"
