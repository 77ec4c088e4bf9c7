"""Limits that are the same in every store."""

from __future__ import annotations

# Log lines kept per job; older ones are dropped.
MAX_LOG_LINES = 1000
# `position` counts no further than this, so that its cost does not depend on the backlog.
MAX_COUNTED_AHEAD = 1000
# Running jobs named in a `position`.
MAX_RUNNING_IDS = 10
# Shortest timed wait: a timer that fires slightly early would otherwise make a waiting loop spin.
MIN_WAIT_SECONDS = 0.001
# Reason recorded when a cancel request gives none.
DEFAULT_CANCEL_REASON = "cancelled"
