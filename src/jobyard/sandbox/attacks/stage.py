"""Where attacks are played: a conversation with the daemon, and what lies about on the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.attacks.leftovers import Rest
from jobyard.sandbox.attacks.scene import Scene
from jobyard.sandbox.attacks.talk import Talk
from jobyard.sandbox.protocol import State, Tier


@dataclass(slots=True)
class Stage:
    talk: Talk
    scene: Scene
    socket: Path
    state: State
    without: Layer | None = None
    is_own: bool = False
    is_warm: bool = False
    rest: Rest | None = None  # as it was before, while nothing has gone wrong

    @property
    def tier(self) -> Tier:
        assert self.state.tier is not None
        return self.state.tier
