"""How much each story takes on: little in `make test`, everything in `make soak`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

SOAK = bool(os.environ.get("JOBYARD_SOAK"))
LEASE_SECONDS = 1.5
# From the end of a lease until its job runs elsewhere: one look for expired leases, and room for a busy machine. The
# soak judges the time: only it has the machine for itself.
RECOVERY_SLACK_SECONDS = 2.0 if SOAK else 3600.0


def size(small: T, full: T) -> T:
    return full if SOAK else small
