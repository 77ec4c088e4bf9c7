"""Attacks on a sandbox as they look in a terminal, and what its daemon says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec
from rich.markup import escape

from jobyard.errors import ConfigurationError
from jobyard.executors.sandbox.attacks.attack import Layer
from jobyard.executors.sandbox.attacks.leftovers import at_rest
from jobyard.executors.sandbox.attacks.own import DidNotStart, own_daemon
from jobyard.executors.sandbox.attacks.play import Item, Report, chosen, on_stage, play, worst
from jobyard.executors.sandbox.attacks.stage import Stage
from jobyard.executors.sandbox.attacks.talk import Hung
from jobyard.executors.sandbox.wire import State, Tier
from jobyard.main.cli.change import progress_bar
from jobyard.main.cli.render import print_table
from jobyard.main.cli.session import Session

MARKS = {True: "[green]✔ held[/]", False: "[bold red]✘ NOT HELD[/]", None: "[dim]– not here[/]"}  # noqa: RUF001
HEADINGS = (">#", "~attack", "~expected", "~seen", ">ms", "verdict")
HELD = {
    Tier.A: "namespaces made as root, limits by control groups",
    Tier.B: "namespaces of an ordinary user",
    Tier.C: "system call filter and Landlock; Python only, one process, no folder to write to",
}


async def attack(session: Session, socket: Path | None, tier: str | None, without: str | None, only: list[str]) -> None:
    items = chosen(only)
    if not items:
        raise click.UsageError(f"--only {','.join(only)} matches no attack.")
    async with _stage(socket, Tier(tier) if tier else None, Layer(without) if without else None) as stage:
        if stage.state.tier is None:
            raise ConfigurationError(f"The sandbox refuses to run anything: {stage.state.reason}")
        reports = await _play(stage, items)
    _show(session, stage.state, reports)
    if worst(reports):
        raise click.exceptions.Exit(1)


async def look(session: Session, socket: Path | None) -> None:
    async with _stage(socket, None, None) as stage:
        if stage.is_own:
            await at_rest(stage.talk, seconds=5)  # its pool has only begun to fill
        state = await stage.talk.ask()
        who = (
            "started for this, to see what can be had here"
            if stage.is_own
            else f"{socket}, pid {stage.talk.daemon_pid}"
        )
    if session.as_json:
        session.print_json(state)
    else:
        session.show(f"daemon     {escape(who)}")
        _tell(session, state)
        session.show(f"slots      {state.running} of {state.slots} busy; {state.runs:,} runs, {state.faults:,} faults")
    if state.tier is None:
        raise click.exceptions.Exit(1)


@asynccontextmanager
async def _stage(socket: Path | None, tier: Tier | None, without: Layer | None) -> AsyncIterator[Stage]:
    try:
        if socket is not None:
            async with on_stage(socket) as stage:
                yield stage
            return
        async with (
            own_daemon(tier=tier, without=without) as own,
            on_stage(own.socket, without=without, secret=own.secret, is_own=True) as stage,
        ):
            yield stage
    except DidNotStart as error:
        raise ConfigurationError(f"{error}.") from error
    except (Hung, TimeoutError) as error:
        raise ConfigurationError(f"The sandbox daemon does not answer: {error}.") from error
    except (FileNotFoundError, ConnectionError, PermissionError) as error:
        raise ConfigurationError(
            f"No sandbox daemon answers at {socket}: {error.strerror}. Is jobyard sandboxd running?"
        ) from error


async def _play(stage: Stage, items: list[Item]) -> list[Report]:
    reports = []
    with progress_bar() as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=f"#{item.number} {item.name[:40]}")
            reports.append(await play(stage, item))
            progress.advance(task)
    return reports


def _show(session: Session, state: State, reports: list[Report]) -> None:
    if session.as_json:
        is_held = not worst(reports)
        session.print_json({"tier": state.tier, "reason": state.reason, "contained": is_held, "attacks": reports})
        return
    _tell(session, msgspec.structs.replace(state, idle={}))  # the pool was full at times, and empty at others
    print_table(session.console, HEADINGS, [_row(report) for report in reports], "no attacks")
    held = sum(report.contained is True for report in reports)
    absent = sum(report.contained is None for report in reports)
    loose = len(reports) - held - absent
    colour = "red" if loose else "green"
    session.show(f"[{colour}]{held} held, {loose} not held[/], {absent} not here, in tier {state.tier}")
    for report in (report for report in reports if report.contained is False):
        session.show(f"[red]#{report.number} {escape(report.name)}[/]: {escape('; '.join(report.problems))}")


def _row(report: Report) -> tuple[str, ...]:
    return (
        str(report.number),
        escape(report.name),
        escape(report.expected),
        escape("; ".join(report.problems) or report.seen),
        f"{report.ms:.0f}",
        MARKS[report.contained],
    )


def _tell(session: Session, state: State) -> None:
    if state.tier is None:
        session.show(f"[red]refuses to run anything[/]: {escape(state.reason)}")
        return
    session.show(f"tier       [bold]{state.tier}[/]  {HELD[state.tier]}")
    if state.reason:
        session.show(f"reason     {escape(state.reason)}")
    for language in state.languages:
        pool = f"  {state.idle.get(language.name, 0)} of {language.pool} warm" if language.name in state.idle else ""
        session.show(f"language   {escape(language.name)}  {escape(language.version)}{pool}")
    for name, why in state.missing.items():
        session.show(f"[dim]missing    {escape(name)}  {escape(why)}[/]")
