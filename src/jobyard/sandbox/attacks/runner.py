"""Runs attacks against a daemon, some side by side, and reports whether each was contained."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from jobyard.sandbox.attacks import unix_socket_scenarios
from jobyard.sandbox.attacks.attack import Attack, Expectation, Layer, judge
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.connection import DaemonUnresponsive, connect
from jobyard.sandbox.attacks.honeypot import honeypot
from jobyard.sandbox.attacks.leaks import ResourceSnapshot, find_leaks, settled_snapshot, warm_up
from jobyard.sandbox.attacks.private_daemon import DaemonStartFailed
from jobyard.sandbox.attacks.scenarios import SCENARIOS, AttackContext, Scenario
from jobyard.sandbox.protocol import RunFinished, RunRejected, RunRequest, RunResponse, RunVerdict

# Lasts about as long as the shortest attacks, so that it overlaps with each.
BYSTANDER = RunRequest(id=0, language="python", source=b"import time\ntime.sleep(0.2)\nprint('well')\n")
CONCURRENT_ATTACKS = 6  # slots of a private daemon
AnyAttack = Attack | Scenario
LANGUAGES = {attack.language for attack in ATTACKS}


class AttackReport(msgspec.Struct, frozen=True):
    number: int
    name: str
    expected: str
    seen: str
    ms: float
    contained: bool | None  # None: not applicable to this daemon
    problems: list[str] = []


def select(only: Collection[str]) -> list[AnyAttack]:
    """Select attacks by number, part of the name or language; all if `only` is empty.

    >>> [item.name for item in select(["1", "memory bomb"])][:2]
    ['fork bomb', 'memory bomb']
    """
    everything: list[AnyAttack] = sorted(
        [*ATTACKS, *SCENARIOS, *unix_socket_scenarios.SCENARIOS], key=lambda item: item.number
    )
    return [item for item in everything if not only or any(_matches(item, word) for word in only)]


def _matches(item: AnyAttack, word: str) -> bool:
    if word.isdigit():
        return item.number == int(word)
    if word in LANGUAGES:
        return isinstance(item, Attack) and item.language == word
    return word.lower() in item.name.lower()


def languages_of(items: Sequence[AnyAttack]) -> set[str]:
    """Languages that a daemon must offer for these attacks. A scenario may use any that an attack uses.

    >>> sorted(languages_of(select(["49", "cpp"])))
    ['cpp', 'python']
    """
    used = ({item.language} if isinstance(item, Attack) else LANGUAGES for item in items)
    return {BYSTANDER.language}.union(*used)


@asynccontextmanager
async def attack_context(
    socket: Path, *, without: Layer | None = None, secret: str | None = None, is_private: bool = False
) -> AsyncIterator[AttackContext]:
    """`is_private`: the daemon was started for the attacks and may be killed."""
    with honeypot(socket, secret) as decoys:
        async with connect(socket) as connection:
            state = await connection.ready()
            yield AttackContext(connection, decoys, socket, state, without, is_private)


async def run_attacks(context: AttackContext, items: Sequence[AnyAttack]) -> AsyncIterator[AttackReport]:
    """Run attacks in this order: one that is harmless to others together with its neighbours, since most only wait."""
    context.state = await context.connection.checked_state()
    group: list[Attack] = []
    for item in items:
        if isinstance(item, Attack) and not item.with_bystander and context.can_run(item):
            group.append(item)
            if len(group) < context.state.slots:
                continue
        for report in await _run_group(context, group):
            yield report
        if item not in group:
            yield await run_attack(context, item)
        group = []
    for report in await _run_group(context, group):
        yield report


async def _run_group(context: AttackContext, group: Sequence[Attack]) -> list[AttackReport]:
    """Run attacks at the same time. If they leave something behind, each is run again alone, to name the one."""
    if len(group) < 2:
        return [await run_attack(context, item) for item in group]
    try:
        before = await _snapshot(context) if context.snapshot is None else context.snapshot
        responses = await asyncio.gather(*(_attack(context, item) for item in group))
        left = context.honeypot.problems() + await find_leaks(context.connection, before)
    except DaemonUnresponsive as error:
        left, responses = [str(error)], []
    context.snapshot = before if not left else None
    if left:
        reports = [await run_attack(context, item) for item in group]
        if has_escape(reports):
            return reports
        first = msgspec.structs.replace(reports[0], contained=False, problems=[f"in a group: {why}" for why in left])
        return [first, *reports[1:]]
    reports = []
    for item, (seen, _) in zip(group, responses, strict=True):
        problems = judge(expectation := context.expectation(item), seen, item.limits)
        if problems and _is_late(seen, item):
            reports.append(await run_attack(context, item))  # the others may have slowed it down
        else:
            reports.append(_report(item, _expected(expectation), *_summary(seen), not problems, problems))
    return reports


def _is_late(seen: RunResponse, item: Attack) -> bool:
    expected = item.expected.in_ms
    is_slow = isinstance(seen, RunFinished) and expected is not None and seen.execution_time_ms > expected
    return is_slow or (isinstance(seen, RunFinished) and seen.verdict is RunVerdict.TIME_LIMIT)


def _expected(expectation: Expectation) -> str:
    return " or ".join(str(each) for each in expectation) or "no leaks"


async def run_attack(context: AttackContext, item: AnyAttack) -> AttackReport:
    """Run one attack. A daemon that hangs or dies is a problem in the report, never an exception."""
    tier = context.state.tier
    if tier is None:
        return _report(item, "", "the daemon rejects every run", 0, None, [])
    if why := context.lacks(item):
        return _report(item, "", why, 0, None, [])
    if isinstance(item, Scenario):
        return await _run_scenario(context, item)
    if not context.offers(item.language):
        return _report(item, "", f"{item.language} is not offered", 0, None, [])
    expectation = context.expectation(item)
    began = time.perf_counter()
    try:
        before = await _snapshot(context) if context.snapshot is None else context.snapshot
        seen, bystander = await _attack(context, item)
        problems = judge(expectation, seen, item.limits)
        problems += _bystander_problems(bystander) + context.honeypot.problems()
        problems += await find_leaks(context.connection, before)
        context.snapshot = before if not problems else None
        words, ms = _summary(seen)
    except DaemonUnresponsive as error:
        problems, words, ms = [str(error)], str(error), (time.perf_counter() - began) * 1000
    return _report(item, _expected(expectation), words, ms, not problems, problems)


async def _snapshot(context: AttackContext) -> ResourceSnapshot:
    if not context.is_warm:
        await warm_up(context.connection)
        context.is_warm = True
    return await settled_snapshot(context.connection)


async def _attack(context: AttackContext, attack: Attack) -> tuple[RunResponse, RunResponse | None]:
    run = RunRequest(
        id=0,
        language=attack.language,
        source=context.honeypot.fill(attack.program),
        stdin=attack.stdin,
        args=attack.args,
        files=attack.files() if callable(attack.files) else attack.files,
        limits=attack.limits,
        collect=tuple(context.honeypot.fill(name).decode() for name in attack.collect),
    )
    if not attack.with_bystander:
        return await context.connection.run(run), None
    bystander = asyncio.create_task(context.connection.run(BYSTANDER))
    seen = await context.connection.run(run)
    return seen, await bystander


def _bystander_problems(bystander: RunResponse | None) -> list[str]:
    if bystander is None or (isinstance(bystander, RunFinished) and bystander.stdout == b"well\n"):
        return []
    return [f"the concurrent program: {_summary(bystander)[0]}"]


async def _run_scenario(context: AttackContext, item: Scenario) -> AttackReport:
    if item.needs_private_daemon and not context.is_private:
        return _report(item, item.expected, "only on a private daemon", 0, None, [])
    began = time.perf_counter()
    try:
        before = await _snapshot(context) if context.snapshot is None else context.snapshot
        problems = await item.run_attack(context)
        problems += context.honeypot.problems()
        problems += await find_leaks(context.connection, before, seconds=10)
        context.snapshot = before if not problems else None
    except (DaemonUnresponsive, DaemonStartFailed) as error:
        problems, context.snapshot = [str(error)], None
    seen = "as expected" if not problems else problems[0]
    return _report(item, item.expected, seen, (time.perf_counter() - began) * 1000, not problems, problems)


def _summary(seen: RunResponse) -> tuple[str, float]:
    if isinstance(seen, RunRejected):
        return f"rejected: {seen.message}", 0.0
    words = [str(seen.verdict)]
    words += [f"signal {seen.signal}"] if seen.signal is not None else []
    words += [f"exit {seen.exit_code}"] if seen.signal is None and seen.exit_code else []
    first = seen.stdout[:200].decode("utf-8", "replace").splitlines()
    words += [", ".join(first[:4])] if first and len(first[0]) < 100 else []
    return "; ".join(words), seen.execution_time_ms


def _report(
    item: AnyAttack, expected: str, seen: str, ms: float, contained: bool | None, problems: list[str]
) -> AttackReport:
    return AttackReport(item.number, item.name, expected or str(item.expected), seen, ms, contained, problems)


def has_escape(reports: Sequence[AttackReport]) -> bool:
    return any(report.contained is False for report in reports)
