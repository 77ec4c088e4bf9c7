"""Histories of several processes: recorded at the store and checked afterwards."""

from jobyard.testing.history.checker import check
from jobyard.testing.history.reader import History
from jobyard.testing.history.recorder import RecordingStore
from jobyard.testing.history.summary import Summary, summary
from jobyard.testing.history.violation import CODES, Violation

__all__ = ["CODES", "History", "RecordingStore", "Summary", "Violation", "check", "summary"]
