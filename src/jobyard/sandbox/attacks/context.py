"""Context of attacks: the connection to the daemon and the decoys on the host."""

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
    is_private: bool = False
    is_warm: bool = False
    snapshot: ResourceSnapshot | None = None  # before the attacks; None after a problem

    @property
    def tier(self) -> Tier:
        assert self.state.tier is not None
        return self.state.tier
