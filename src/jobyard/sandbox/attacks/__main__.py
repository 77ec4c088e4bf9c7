"""All attacks on a daemon of its own, as JSON: needs nothing but what the daemon needs."""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec

from jobyard.sandbox.attacks.attack import Attack, Layer
from jobyard.sandbox.attacks.own import DidNotStart, own_daemon
from jobyard.sandbox.attacks.play import Item, Report, chosen, on_stage, play_all
from jobyard.sandbox.protocol import State, Tier


class Played(msgspec.Struct, frozen=True, kw_only=True):
    state: State | None
    refusal: str = ""  # why there was no daemon
    reports: list[Report] = []


async def played(tier: Tier | None, without: Layer | None, items: list[Item]) -> Played:
    try:
        async with (
            own_daemon(tier=tier, without=without) as own,
            on_stage(own.socket, without=without, secret=own.secret, is_own=True) as stage,
        ):
            if stage.state.tier is None:
                return Played(state=stage.state, refusal=stage.state.reason)
            return Played(state=stage.state, reports=[report async for report in play_all(stage, items)])
    except DidNotStart as error:
        return Played(state=None, refusal=str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", type=Tier)
    parser.add_argument("--without", type=Layer)
    parser.add_argument("--only", default="")
    parser.add_argument("--programs", action="store_true", help="without what is done to the daemon itself")
    given = parser.parse_args()
    items = chosen([word for word in given.only.split(",") if word])
    if given.programs:
        items = [item for item in items if isinstance(item, Attack)]
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(played(given.tier, given.without, items))) + b"\n")


if __name__ == "__main__":
    main()
