"""What tests of jobyard, and of applications that use it, need."""

from jobyard.testing.clock import ManualClock
from jobyard.testing.kit import Isolated, assert_enqueued, drain, inline, isolated, refute_enqueued

__all__ = ["Isolated", "ManualClock", "assert_enqueued", "drain", "inline", "isolated", "refute_enqueued"]
