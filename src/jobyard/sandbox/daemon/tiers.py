"""Which tier programs get here: found once at the start, by running canaries through the real path."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from jobyard.sandbox.daemon import canaries, cgroups
from jobyard.sandbox.daemon.languages import Definition
from jobyard.sandbox.daemon.member import SpawnFailed
from jobyard.sandbox.daemon.place import Place
from jobyard.sandbox.protocol import Tier


class NoTier(Exception):
    """No tier that the operator accepts can be had; the message says why not, tier by tier."""


@dataclass(frozen=True)
class Choice:
    place: Place
    reason: str  # why it is not a better one


async def choose(
    languages: dict[str, Definition],
    min_tier: Tier,
    only: Tier | None,
    *,
    pool: int | None = None,
    without: Collection[str] = (),
) -> Choice:
    """The best tier whose canaries die as they should. Raises NoTier."""
    reasons: list[str] = []
    for tier in Tier:
        if only is not None and tier is not only:
            continue
        if tier > min_tier:
            reasons.append(f"{tier}: below the least tier asked for, {min_tier}")
            continue
        place, why = await _try(tier, languages, pool, without)
        if place is not None:
            return Choice(place, "; ".join(reasons))
        reasons.append(f"{tier}: {why}")
    raise NoTier("; ".join(reasons))


async def _try(
    tier: Tier, languages: dict[str, Definition], pool: int | None, without: Collection[str]
) -> tuple[Place | None, str]:
    if tier is Tier.A and os.getuid() != 0:
        return None, "not root"
    is_trial = tier is Tier.B and os.getuid() == 0  # an ordinary user seldom has groups of its own
    groups, why = cgroups.find() if tier is not Tier.C and not is_trial else (None, "")
    if tier is Tier.A and groups is None:
        return None, f"no control groups: {why}"
    try:
        place = Place(tier, languages, groups, pool=pool, without=without)
    except OSError as error:
        if groups is not None:
            groups.close()
        return None, str(error)
    try:
        await place.open()
        await canaries.release(place, without)
    except (SpawnFailed, canaries.Escaped, OSError, ImportError, RuntimeError) as error:
        await place.close()
        return None, str(error)
    return place, ""
