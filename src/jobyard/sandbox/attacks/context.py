"""Where attacks are played: a conversation with the daemon, and what lies about on the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.attacks.honeypot import Honeypot
from jobyard.sandbox.attacks.leaks import ResourceSnapshot
from jobyard.sandbox.protocol import SandboxState, Tier


@dataclass(slots=True)
class AttackContext:
    connection: DaemonConnection
    honeypot: Honeypot
    socket: Path
    state: SandboxState
    without: Layer | None = None
    is_own: bool = False
    is_warm: bool = False
    rest: ResourceSnapshot | None = None  # as it was before, while nothing has gone wrong

    @property
    def tier(self) -> Tier:
        assert self.state.tier is not None
        return self.state.tier
