"""Every store against the reference, on random histories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.conformance.machine import StoreMachine
from tests.conformance.stores import STORES, sharded_machine

from jobyard.testing.clock import ManualClock

MACHINES = STORES | {"sharded": sharded_machine}
SOAK = bool(os.environ.get("JOBYARD_SOAK"))
COUNTS = settings(
    max_examples=600 if SOAK else 12,
    stateful_step_count=60 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
# Runs the code of PostgreSQL, more slowly: a few histories test that nothing depends on a session.
# A sharded store decides nothing itself: a few examples show that it forwards every verb.
FEWER = settings(COUNTS, max_examples=COUNTS.max_examples // 3)


# Memory against itself tests the machine and that the reference is deterministic.
@pytest.mark.parametrize("name", MACHINES)
# A pass takes seconds; the rest is for shrinking, which an early timeout would cut off.
@pytest.mark.timeout(7200 if SOAK else 600)
def test_the_store_behaves_as_the_reference(name: str, tmp_path: Path) -> None:
    MACHINES[name](tmp_path, ManualClock())  # a missing server is reported now, not within a history
    machine = type(f"{name.title()}Machine", (StoreMachine,), {"make": staticmethod(MACHINES[name])})
    run_state_machine_as_test(machine, settings=FEWER if name in ("pgbouncer", "sharded") else COUNTS)
