"""Which tier programs get here: found once at the start, by running canaries through the real path."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from jobyard.sandbox.daemon import canaries, cgroup_discovery
from jobyard.sandbox.daemon.box import SpawnFailed
from jobyard.sandbox.daemon.languages import LanguageDefinition
from jobyard.sandbox.daemon.tier_runtime import TierRuntime
from jobyard.sandbox.protocol import Tier


class TierUnavailable(Exception):
    """No tier that the operator accepts can be had; the message says why not, tier by tier."""


@dataclass(frozen=True)
class TierChoice:
    runtime: TierRuntime
    reason: str  # why it is not a better one


async def choose(
    languages: dict[str, LanguageDefinition],
    min_tier: Tier,
    only: Tier | None,
    *,
    pool: int | None = None,
    without: Collection[str] = (),
) -> TierChoice:
    """The best tier whose canaries die as they should. Raises NoTier."""
    reasons: list[str] = []
    for tier in Tier:
        if only is not None and tier is not only:
            continue
        if tier > min_tier:
            reasons.append(f"{tier}: below the least tier asked for, {min_tier}")
            continue
        runtime, why = await _try(tier, languages, pool, without)
        if runtime is not None:
            return TierChoice(runtime, "; ".join(reasons))
        reasons.append(f"{tier}: {why}")
    raise TierUnavailable("; ".join(reasons))


async def _try(
    tier: Tier, languages: dict[str, LanguageDefinition], pool: int | None, without: Collection[str]
) -> tuple[TierRuntime | None, str]:
    if tier is Tier.A and os.getuid() != 0:
        return None, "not root"
    is_trial = tier is Tier.B and os.getuid() == 0  # an ordinary user seldom has groups of its own
    groups, why = cgroup_discovery.find() if tier is not Tier.C and not is_trial else (None, "")
    if tier is Tier.A and groups is None:
        return None, f"no control groups: {why}"
    try:
        runtime = TierRuntime(tier, languages, groups, pool=pool, without=without)
    except OSError as error:
        if groups is not None:
            groups.close()
        return None, str(error)
    try:
        await runtime.open()
        await canaries.release(runtime, without)
    except (SpawnFailed, canaries.CanaryEscaped, OSError, ImportError, RuntimeError) as error:
        await runtime.close()
        return None, str(error)
    return runtime, ""
