"""Plays attacks against a daemon, one after the other, and says of each whether it was held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from jobyard.sandbox.attacks.attack import Attack, Layer, judge
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.leftovers import Rest, at_rest, leftovers, warm_up
from jobyard.sandbox.attacks.own import DidNotStart
from jobyard.sandbox.attacks.scenarios import SCENARIOS, Scenario
from jobyard.sandbox.attacks.scene import scene
from jobyard.sandbox.attacks.stage import Stage
from jobyard.sandbox.attacks.talk import Hung, talking
from jobyard.sandbox.protocol import Finished, Refused, Run

# Takes about as long as the shortest attacks, so that it is in their way.
BYSTANDER = Run(id=0, language="python", source=b"import time\ntime.sleep(0.2)\nprint('well')\n")
Item = Attack | Scenario
LANGUAGES = {attack.language for attack in ATTACKS}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    expected: str
    seen: str
    ms: float
    contained: bool | None  # None: what it attacks is not offered here
    problems: list[str] = []


def chosen(only: Collection[str]) -> list[Item]:
    """By number, by part of the name, or by language; everything when nothing was named.

    >>> [item.name for item in chosen(["1", "memory bomb"])][:2]
    ['fork bomb', 'memory bomb']
    """
    everything: list[Item] = sorted([*ATTACKS, *SCENARIOS], key=lambda item: item.number)
    return [item for item in everything if not only or any(_is_named(item, word) for word in only)]


def _is_named(item: Item, word: str) -> bool:
    if word.isdigit():
        return item.number == int(word)
    if word in LANGUAGES:
        return isinstance(item, Attack) and item.language == word
    return word.lower() in item.name.lower()


@asynccontextmanager
async def on_stage(
    socket: Path, *, without: Layer | None = None, secret: str | None = None, is_own: bool = False
) -> AsyncIterator[Stage]:
    """`is_own`: the daemon was started for this and may come to harm."""
    with scene(socket, secret) as set_up:
        async with talking(socket) as talk:
            state = await talk.ready()
            yield Stage(talk=talk, scene=set_up, socket=socket, state=state, without=without, is_own=is_own)


async def play_all(stage: Stage, items: Sequence[Item]) -> AsyncIterator[Report]:
    for item in items:
        yield await play(stage, item)


async def play(stage: Stage, item: Item) -> Report:
    """Never raises because of the daemon: one that hangs or goes away is what an attack is after."""
    tier = stage.state.tier
    if tier is None:
        return _report(item, "", "refuses to run anything", 0, None, [])
    if isinstance(item, Scenario):
        return await _play_scenario(stage, item)
    if item.language not in {language.name for language in stage.state.languages}:
        return _report(item, "", f"{item.language} is not offered", 0, None, [])
    expectation = item.expectation(tier, stage.without)
    expected = " or ".join(str(each) for each in expectation) or "nothing left behind"
    began = time.perf_counter()
    try:
        before = await _rest(stage) if stage.rest is None else stage.rest
        seen, bystander = await _attack(stage, item)
        problems = judge(expectation, seen, item.limits)
        problems += _noticed(bystander) + stage.scene.harm()
        problems += await leftovers(stage.talk, before)
        stage.rest = before if not problems else None
        words, ms = _seen(seen)
    except Hung as error:
        problems, words, ms = [str(error)], str(error), (time.perf_counter() - began) * 1000
    return _report(item, expected, words, ms, not problems, problems)


async def _rest(stage: Stage) -> Rest:
    if not stage.is_warm:
        await warm_up(stage.talk)
        stage.is_warm = True
    return await at_rest(stage.talk)


async def _attack(stage: Stage, attack: Attack) -> tuple[Finished | Refused, Finished | Refused | None]:
    run = Run(
        id=0,
        language=attack.language,
        source=stage.scene.fill(attack.program),
        stdin=attack.stdin,
        args=attack.args,
        files=attack.files() if callable(attack.files) else attack.files,
        limits=attack.limits,
        collect=tuple(stage.scene.fill(name).decode() for name in attack.collect),
    )
    if not attack.beside:
        return await stage.talk.run(run), None
    beside = asyncio.create_task(stage.talk.run(BYSTANDER))
    seen = await stage.talk.run(run)
    return seen, await beside


def _noticed(bystander: Finished | Refused | None) -> list[str]:
    if bystander is None or (isinstance(bystander, Finished) and bystander.stdout == b"well\n"):
        return []
    return [f"the program beside it: {_seen(bystander)[0]}"]


async def _play_scenario(stage: Stage, item: Scenario) -> Report:
    if item.needs_own and not stage.is_own:
        return _report(item, item.expected, "only on a daemon of its own", 0, None, [])
    began = time.perf_counter()
    try:
        before = await _rest(stage)
        problems = await item.play(stage)
        problems += stage.scene.harm()
        problems += await leftovers(stage.talk, before, seconds=10)
    except (Hung, DidNotStart) as error:
        problems = [str(error)]
    stage.rest = None
    seen = "as expected" if not problems else problems[0]
    return _report(item, item.expected, seen, (time.perf_counter() - began) * 1000, not problems, problems)


def _seen(seen: Finished | Refused) -> tuple[str, float]:
    if isinstance(seen, Refused):
        return f"refused: {seen.message}", 0.0
    words = [str(seen.verdict)]
    words += [f"signal {seen.signal}"] if seen.signal is not None else []
    words += [f"exit {seen.exit_code}"] if seen.signal is None and seen.exit_code else []
    first = seen.stdout[:200].decode("utf-8", "replace").splitlines()
    words += [", ".join(first[:4])] if first and len(first[0]) < 100 else []
    return "; ".join(words), seen.execution_time_ms


def _report(item: Item, expected: str, seen: str, ms: float, contained: bool | None, problems: list[str]) -> Report:
    return Report(
        number=item.number,
        name=item.name,
        expected=expected or str(item.expected),
        seen=seen,
        ms=ms,
        contained=contained,
        problems=problems,
    )


def worst(reports: Sequence[Report]) -> bool:
    """Whether anything was not held."""
    return any(report.contained is False for report in reports)
