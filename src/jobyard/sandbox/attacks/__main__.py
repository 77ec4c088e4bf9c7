"""Run all attacks against a private daemon and print the reports as JSON. Needs only what the daemon needs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import msgspec

from jobyard.sandbox.attacks.attack import Attack, Layer
from jobyard.sandbox.attacks.private_daemon import DaemonStartFailed, private_daemon
from jobyard.sandbox.attacks.runner import (
    CONCURRENT_ATTACKS,
    AnyAttack,
    AttackReport,
    attack_context,
    languages_of,
    run_attacks,
    select,
)
from jobyard.sandbox.protocol import SandboxState, Tier


class SelftestReport(msgspec.Struct, frozen=True, kw_only=True):
    state: SandboxState | None
    refusal: str = ""  # why the daemon did not start or rejects runs
    reports: list[AttackReport] = []


async def run_selftest(
    tier: Tier | None, without: Layer | None, items: list[AnyAttack], options: Sequence[str] = ()
) -> SelftestReport:
    try:
        async with (
            private_daemon(
                tier=tier,
                without=without,
                slots=CONCURRENT_ATTACKS,
                languages=languages_of(items),
                options=options,
            ) as daemon,
            attack_context(daemon.socket, without=without, secret=daemon.secret, is_private=True) as context,
        ):
            if context.state.tier is None:
                return SelftestReport(state=context.state, refusal=context.state.reason)
            return SelftestReport(state=context.state, reports=[report async for report in run_attacks(context, items)])
    except DaemonStartFailed as error:
        return SelftestReport(state=None, refusal=str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", type=Tier)
    parser.add_argument("--without", type=Layer)
    parser.add_argument("--only", default="")
    parser.add_argument("--programs", action="store_true", help="run programs only, not attacks on the daemon itself")
    parser.add_argument("--unix-sockets", action="store_true", help="let programs create Unix stream sockets")
    parser.add_argument("--tcp-sockets", type=int, default=0, help="let programs use TCP, with as many sockets")
    given = parser.parse_args()
    items = select([word for word in given.only.split(",") if word])
    if given.programs:
        items = [item for item in items if isinstance(item, Attack)]
    options = ["--unix-sockets"] if given.unix_sockets else []
    options += ["--tcp-sockets", str(given.tcp_sockets)] if given.tcp_sockets else []
    report = asyncio.run(run_selftest(given.tier, given.without, items, options))
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    main()
