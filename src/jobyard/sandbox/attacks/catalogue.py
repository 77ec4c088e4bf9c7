"""Every attack, by number."""

from __future__ import annotations

from jobyard.sandbox.attacks import (
    edge_cases,
    files,
    host_access,
    kernel_objects,
    network,
    other_languages,
    pinning,
    resources,
    syscalls,
    tcp_sockets,
    termination,
    unix_sockets,
)
from jobyard.sandbox.attacks.attack import Attack

_MODULES = (
    resources,
    termination,
    host_access,
    network,
    syscalls,
    edge_cases,
    files,
    other_languages,
    pinning,
    kernel_objects,
    unix_sockets,
    tcp_sockets,
)
ATTACKS: tuple[Attack, ...] = tuple(
    sorted((attack for module in _MODULES for attack in module.ATTACKS), key=lambda attack: attack.number)
)
