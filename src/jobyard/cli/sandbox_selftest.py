"""The self-test of the sandbox by attacks, and the state of its daemon, on the terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import click
import msgspec
from rich.markup import escape

from jobyard.cli.commands.job_actions import progress_bar
from jobyard.cli.render.output import MARKS as LOOKS
from jobyard.cli.render.output import echo, plain, print_table
from jobyard.cli.session import Session
from jobyard.errors import ConfigurationError
from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.attacks.connection import DaemonUnresponsive
from jobyard.sandbox.attacks.leaks import settled_snapshot
from jobyard.sandbox.attacks.private_daemon import DaemonStartFailed, private_daemon
from jobyard.sandbox.attacks.runner import (
    CONCURRENT_ATTACKS,
    AnyAttack,
    AttackReport,
    attack_context,
    has_escape,
    languages_of,
    run_attacks,
    select,
)
from jobyard.sandbox.attacks.scenarios import AttackContext
from jobyard.sandbox.daemon.languages import BadLanguages
from jobyard.sandbox.protocol import TCP_CONNECTION_MB, SandboxState, Tier

MARKS = {True: "[green]✔ contained[/]", False: "[bold red]✘ ESCAPED[/]", None: "[dim]– not applicable[/]"}  # noqa: RUF001
HEADINGS = (">#", "~attack", "~expected", "~seen", ">ms", "verdict")
HELD = {
    Tier.A: "namespaces made as root, limits by control groups",
    Tier.B: "namespaces of an ordinary user",
    Tier.C: "system call filter and Landlock; Python only, one process, no folder to write to",
}


async def attack(session: Session, socket: Path | None, tier: str | None, without: str | None, only: list[str]) -> None:
    items = select(only)
    if not items:
        raise click.UsageError(f"--only {','.join(only)} matches no attack.")
    with _cleanup_on_sigterm():
        chosen = Tier(tier) if tier else None, Layer(without) if without else None
        options = _options(session)
        async with _stage(socket, *chosen, languages_of(items), options=options) as context:
            if context.state.tier is None:
                raise ConfigurationError(f"The sandbox cannot run programs: {context.state.reason}")
            _print_state(session, msgspec.structs.replace(context.state, idle={}))
            reports = await _play(session, context, items)
    _show(session, context.state, reports)
    if has_escape(reports):
        raise click.exceptions.Exit(1)


@contextmanager
def _cleanup_on_sigterm() -> Iterator[None]:
    """On SIGTERM, clean up first: the daemon, the bait files, their folders."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(RuntimeError):  # not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise click.exceptions.Exit(128 + signal.SIGTERM) from None


async def print_status(session: Session, socket: Path | None) -> None:
    configured = session.configuration.sandbox.languages
    file = Path(configured) if configured else None
    async with _stage(socket, None, None, file=file, options=_options(session)) as context:
        if context.is_private:
            await context.connection.checked_state()
            await settled_snapshot(context.connection, seconds=5)  # wait until its pool is filled
        state = await context.connection.fetch_state()
        who = "started for this check" if context.is_private else f"{socket}, pid {context.connection.daemon_pid}"
    if session.as_json:
        session.print_json(state)
    else:
        session.print_markup(f"daemon     {escape(who)}")
        _print_state(session, state)
        busy = f"{state.running} of {state.slots} busy"
        session.print_markup(f"slots      {busy}; {state.runs:,} runs, {state.faults:,} faults")
    if state.tier is None:
        raise click.exceptions.Exit(1)


def _options(session: Session) -> list[str]:
    section = session.configuration.sandbox
    words = ["--unix-sockets"] if section.unix_sockets else []
    return [*words, "--tcp-sockets", str(section.tcp_sockets)] if section.tcp_sockets else words


@asynccontextmanager
async def _stage(
    socket: Path | None,
    tier: Tier | None,
    without: Layer | None,
    languages: Collection[str] = (),
    file: Path | None = None,
    options: Sequence[str] = (),
) -> AsyncIterator[AttackContext]:
    try:
        if socket is not None:
            async with attack_context(socket) as context:
                yield context
            return
        async with (
            private_daemon(
                tier=tier,
                without=without,
                slots=CONCURRENT_ATTACKS,
                languages=languages,
                file=file,
                options=options,
            ) as own,
            attack_context(own.socket, without=without, secret=own.secret, is_private=True) as context,
        ):
            yield context
    except BadLanguages as error:
        raise ConfigurationError(str(error)) from error
    except DaemonStartFailed as error:
        raise ConfigurationError(f"{error}.") from error
    except (DaemonUnresponsive, TimeoutError) as error:
        raise ConfigurationError(f"The sandbox daemon does not respond: {error}.") from error
    except (FileNotFoundError, ConnectionError, PermissionError) as error:
        raise ConfigurationError(
            f"Cannot connect to the sandbox daemon at {socket}: {error.strerror}. Is jobyard sandboxd running?"
        ) from error


async def _play(session: Session, context: AttackContext, items: list[AnyAttack]) -> list[AttackReport]:
    """A progress bar on a terminal, and the table at the end; elsewhere each line as soon as it is known."""
    reports = []
    prints_each = not session.console.is_terminal and not session.as_json
    if prints_each:
        echo("\t".join(heading.lstrip(LOOKS) for heading in HEADINGS))
    with progress_bar() as progress:
        task = progress.add_task("", total=len(items))
        async for report in run_attacks(context, items):
            progress.update(task, description=f"#{report.number} {report.name[:40]}")
            reports.append(report)
            if prints_each:
                echo("\t".join(plain(cell) for cell in _row(report)))
            progress.advance(task)
    return reports


def _show(session: Session, state: SandboxState, reports: list[AttackReport]) -> None:
    if session.as_json:
        is_held = not has_escape(reports)
        session.print_json({"tier": state.tier, "reason": state.reason, "contained": is_held, "attacks": reports})
        return
    if session.console.is_terminal:
        print_table(session.console, HEADINGS, [_row(report) for report in reports], "no attacks")
    held = sum(report.contained is True for report in reports)
    absent = sum(report.contained is None for report in reports)
    loose = len(reports) - held - absent
    colour = "red" if loose else "green"
    counts = f"[{colour}]{held} contained, {loose} not contained[/], {absent} not applicable"
    session.print_markup(f"{counts}, in tier {state.tier}")
    for report in (report for report in reports if report.contained is False):
        session.print_markup(f"[red]#{report.number} {escape(report.name)}[/]: {escape('; '.join(report.problems))}")


def shortened(text: str, most: int = 80) -> str:
    """
    >>> shortened("a" * 100, 10)
    'aaaaaaaaa…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _row(report: AttackReport) -> tuple[str, ...]:
    return (
        str(report.number),
        escape(report.name),
        escape(shortened(report.expected)),
        escape("; ".join(report.problems) or report.seen),
        f"{report.ms:.0f}",
        MARKS[report.contained],
    )


def _print_state(session: Session, state: SandboxState) -> None:
    if session.as_json:
        return
    if state.tier is None:
        session.print_markup(f"[red]cannot run programs[/]: {escape(state.reason)}")
        return
    session.print_markup(f"tier       [bold]{state.tier}[/]  {HELD[state.tier]}")
    if state.reason:
        session.print_markup(f"reason     {escape(state.reason)}")
    if state.unix_sockets:
        session.print_markup("sockets    Unix stream sockets among the processes of a program")
    if state.why_no_unix_sockets:
        session.print_markup(
            f"[yellow]sockets    sandbox.unix_sockets has no effect: {escape(state.why_no_unix_sockets)}[/]"
        )
    if state.tcp_sockets:
        most = state.tcp_sockets * TCP_CONNECTION_MB
        session.print_markup(
            f"sockets    TCP among the processes of a program, with at most {state.tcp_sockets} sockets; "
            f"up to {most} MB beside the memory limit of each run"
        )
    if state.why_no_tcp:
        session.print_markup(f"[yellow]sockets    sandbox.tcp_sockets has no effect: {escape(state.why_no_tcp)}[/]")
    for language in state.languages:
        pool = f"  {state.idle.get(language.name, 0)} of {language.pool} warm" if language.name in state.idle else ""
        session.print_markup(f"language   {escape(language.name)}  {escape(language.version)}{pool}")
    for name in state.checking:
        session.print_markup(f"[dim]checking   {escape(name)}  its self-test has not ended yet[/]")
    for name, why in state.missing.items():
        session.print_markup(f"[dim]missing    {escape(name)}  {escape(why)}[/]")
