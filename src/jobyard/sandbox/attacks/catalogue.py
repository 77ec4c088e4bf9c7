"""Every attack, by number."""

from __future__ import annotations

from jobyard.sandbox.attacks import (
    artefacts,
    compiled,
    ending,
    kernel,
    network,
    pinning,
    program,
    reach,
    resources,
)
from jobyard.sandbox.attacks.attack import Attack

_MODULES = (resources, ending, reach, network, kernel, program, artefacts, compiled, pinning)
ATTACKS: tuple[Attack, ...] = tuple(
    sorted((attack for module in _MODULES for attack in module.ATTACKS), key=lambda attack: attack.number)
)
