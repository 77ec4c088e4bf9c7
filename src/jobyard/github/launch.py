"""One attempt to launch a runner, as the steps of the executor pass it on."""

from __future__ import annotations

from typing import NamedTuple

from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Outcome
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.launcher import Launcher
from jobyard.github.tickets import TicketPayload


class Launch(NamedTuple):
    """What a runner is launched for, and the ticket that permits it."""

    lease: Lease
    ticket: TicketPayload
    profile: RunnerProfile
    launcher: Launcher


class Stop(Exception):  # not an error: it ends an attempt early
    """Ends an attempt with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(repr(outcome))
        self.outcome = outcome
