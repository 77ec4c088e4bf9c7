"""Choice of the tier: at startup, by running canaries through the real code path."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from jobyard.sandbox.daemon import canaries, cgroup_discovery
from jobyard.sandbox.daemon.box import SpawnFailed
from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.tier_runtime import TierRuntime
from jobyard.sandbox.protocol import Tier


class TierUnavailable(Exception):
    """No tier that the operator accepts works here."""

    def __init__(self, reasons: Mapping[Tier, str]) -> None:
        super().__init__(_joined(reasons))
        self.reasons = reasons


async def choose(
    languages: dict[str, LanguageDefinition],
    min_tier: Tier,
    only: Tier | None,
    *,
    pool: int | None = None,
    unix_sockets: bool = False,
    tcp_sockets: int = 0,
    without: Collection[str] = (),
) -> tuple[TierRuntime, str]:
    """Open the best tier that contains its canaries; also say why it is not better. Raises TierUnavailable."""
    reasons: dict[Tier, str] = {}
    for tier in Tier:
        if only is not None and tier is not only:
            continue
        if tier > min_tier:
            reasons[tier] = f"below min_tier {min_tier}"
            continue
        runtime, why = await _open(tier, languages, pool, unix_sockets, tcp_sockets, without)
        if runtime is not None:
            return runtime, _joined(reasons)
        reasons[tier] = why
    raise TierUnavailable(reasons)


def _joined(reasons: Mapping[Tier, str]) -> str:
    return "; ".join(f"{tier}: {why}" for tier, why in reasons.items())


async def _open(
    tier: Tier,
    languages: dict[str, LanguageDefinition],
    pool: int | None,
    unix_sockets: bool,
    tcp_sockets: int,
    without: Collection[str],
) -> tuple[TierRuntime | None, str]:
    if tier is Tier.A and os.getuid() != 0:
        return None, "not root"
    is_trial = tier is Tier.B and os.getuid() == 0  # root tries what an unprivileged user gets, who rarely has cgroups
    groups, why = cgroup_discovery.find() if tier is not Tier.C and not is_trial else (None, "")
    if tier is Tier.A and groups is None:
        return None, f"no cgroups: {why}"
    try:
        runtime = TierRuntime(
            tier, languages, groups, pool=pool, unix_sockets=unix_sockets, tcp_sockets=tcp_sockets, without=without
        )
    except OSError as error:
        if groups is not None:
            groups.close()
        return None, str(error)
    try:
        await runtime.open()
        await canaries.run_canaries(runtime, without)
    except (SpawnFailed, canaries.CanaryEscaped, OSError, ImportError, RuntimeError) as error:
        await runtime.close()
        return None, str(error)
    return runtime, ""
