"""The daemon without its socket: chooses the tier, tests the languages, replaces a lost zygote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobyard.sandbox.daemon import languages as definitions
from jobyard.sandbox.daemon import tiers
from jobyard.sandbox.daemon.language_selftest import check_language
from jobyard.sandbox.daemon.program_run import OnOutput, RunControl
from jobyard.sandbox.daemon.supervisor import RunSupervisor
from jobyard.sandbox.protocol import Fault, Language, RunFinished, RunRejected, RunRequest, SandboxState, Tier

_log = logging.getLogger(__name__)
_RETRY_S = 5.0  # between searches for a tier: each spawns processes and runs canaries
_REPLACE_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class DaemonOptions:
    min_tier: Tier = Tier.A
    tier: Tier | None = None  # only this tier, for tests and trials
    slots: int = 2
    languages: Path | None = None
    only: tuple[str, ...] = ()  # of the languages; empty: all
    pool: int | None = None  # upper limit for every pool; None: the size in the language definition
    unix_sockets: bool = False  # whether programs may create them
    tcp_sockets: int = 0  # how many a program may have when it connects; 0: none
    without: tuple[str, ...] = ()  # layers left out, to test the others


class SandboxDaemon:
    def __init__(self, options: DaemonOptions) -> None:
        self._options = options
        known = definitions.load(options.languages)
        self._definitions = {name: known[name] for name in known if name in options.only or not options.only}
        self._supervisor: RunSupervisor | None = None
        self._reason = "the daemon has not started yet"
        self._languages: tuple[Language, ...] = ()
        self._missing: dict[str, str] = {}
        self._checking: dict[str, asyncio.Future[None]] = {}  # languages that are tested while others are served
        self._checker: asyncio.Task[None] | None = None
        self.on_change: set[Callable[[], None]] = set()  # called when the offered languages change
        self._decided = asyncio.Event()  # either there is a supervisor or a reason why there is none
        self._restart: asyncio.Task[None] | None = None
        self._runs = self._faults = 0

    async def start(self) -> None:
        """Choose the tier and test the languages. On failure, reject runs with the reason and retry."""
        await self._open(self._options.tier)

    async def _open(self, tier: Tier | None, previous: RunSupervisor | None = None) -> None:
        if not await self._try_open(tier, previous):
            _log.error("cannot run programs: %s", self._reason)
            self._decided.set()
            self._restart = asyncio.create_task(self._open_later(tier, previous))

    async def _try_open(self, tier: Tier | None, previous: RunSupervisor | None) -> bool:
        options = self._options
        try:
            runtime, reason = await tiers.choose(
                self._definitions,
                options.min_tier,
                tier,
                pool=options.pool,
                unix_sockets=options.unix_sockets,
                tcp_sockets=options.tcp_sockets,
                without=options.without,
            )
        except tiers.TierUnavailable as error:
            self._reason = str(error)
            return False
        supervisor = previous
        if supervisor is None:
            supervisor = RunSupervisor(runtime, self._definitions, options.slots)
            self._languages, self._missing = (), {}
            slow = [name for name, language in self._definitions.items() if language.slow_start]
            for name in self._definitions:
                if name not in slow:
                    await self._check(supervisor, name)
            self._checking = {name: asyncio.get_running_loop().create_future() for name in slow}
            self._checker = asyncio.create_task(self._check_slow(slow))
        supervisor.runtime = runtime
        supervisor.offer(self._languages)
        self._reason = reason
        self._supervisor = supervisor
        runtime.zygote.on_lost = self._on_zygote_lost
        self._decided.set()
        _log.info("tier %s; %s", runtime.tier, ", ".join(language.name for language in self._languages))
        if runtime.why_no_unix_sockets:
            _log.warning("unix_sockets has no effect: %s", runtime.why_no_unix_sockets)
        if runtime.why_no_tcp:
            _log.warning("tcp_sockets has no effect: %s", runtime.why_no_tcp)
        if not runtime.zygote.is_alive:
            self._on_zygote_lost()
        return True

    async def _check(self, supervisor: RunSupervisor, name: str) -> None:
        found = await check_language(supervisor, name, self._definitions[name])
        if isinstance(found, Language):
            order = list(self._definitions)
            self._languages = tuple(sorted((*self._languages, found), key=lambda each: order.index(each.name)))
        else:
            self._missing[name] = found

    async def _check_slow(self, names: list[str]) -> None:
        """Test these languages beside the runs of others."""
        for name in names:
            while True:
                while (supervisor := self._supervisor) is None:
                    await self._decided.wait()
                    await asyncio.sleep(_REPLACE_BACKOFF_S[0])
                runtime = supervisor.runtime
                await self._check(supervisor, name)
                if name not in self._missing or (self._supervisor is supervisor and supervisor.runtime is runtime):
                    break
                del self._missing[name]  # the zygote was lost meanwhile, which says nothing about the language
            self._checking.pop(name).set_result(None)
            supervisor.offer(self._languages)
            for notify in list(self.on_change):
                notify()

    async def _open_later(self, tier: Tier | None, previous: RunSupervisor | None) -> None:
        await asyncio.sleep(_RETRY_S)
        await self._open(tier, previous)

    def _on_zygote_lost(self) -> None:
        """Replace the zygote. Runs in flight fail; new runs wait for the next, which must pass the canaries again."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        _log.warning("the zygote was lost")
        self._reason = "the zygote was lost"
        self._decided.clear()
        self._restart = asyncio.create_task(self._replace(supervisor))

    async def _replace(self, supervisor: RunSupervisor) -> None:
        tier = supervisor.runtime.tier
        await supervisor.runtime.close()
        for seconds in _REPLACE_BACKOFF_S:  # this tier worked a moment ago, so runs keep waiting for it
            if await self._try_open(tier, supervisor):
                return
            _log.warning("cannot start a new zygote yet: %s", self._reason)
            await asyncio.sleep(seconds)
        await self._open(tier, supervisor)

    async def run(
        self, request: RunRequest, on_output: OnOutput | None = None, control: RunControl | None = None
    ) -> RunFinished | RunRejected:
        if (check := self._checking.get(request.language)) is not None:
            await asyncio.wait([check])
        while self._supervisor is None and not self._decided.is_set():
            await self._decided.wait()
        supervisor = self._supervisor
        response: RunFinished | RunRejected
        if supervisor is not None and (why := self._missing.get(request.language)) is not None:
            fault, message = Fault.UNKNOWN_LANGUAGE, f"language {request.language!r} is not offered here: {why}"
            response = RunRejected(id=request.id, fault=fault, message=message, may_have_run=False)
        elif supervisor is None:
            fault = Fault.SANDBOX_UNAVAILABLE
            response = RunRejected(id=request.id, fault=fault, message=self._reason, may_have_run=False)
        else:
            response = await supervisor.run(request, on_output, control)
            if isinstance(response, RunRejected) and response.fault is Fault.ZYGOTE_LOST and not response.may_have_run:
                await self._decided.wait()  # the next zygote can run it
                response = await (self._supervisor or supervisor).run(request, on_output, control)
        self._runs += 1
        self._faults += isinstance(response, RunRejected)
        return response

    def state(self) -> SandboxState:
        supervisor = self._supervisor
        return SandboxState(
            tier=supervisor.runtime.tier if supervisor else None,
            reason=self._reason,
            languages=self._languages if supervisor else (),
            missing=self._missing,
            checking=tuple(self._checking),
            unix_sockets=supervisor.runtime.has_unix_sockets if supervisor else False,
            why_no_unix_sockets=supervisor.runtime.why_no_unix_sockets if supervisor else "",
            tcp_sockets=supervisor.runtime.tcp_sockets if supervisor else 0,
            why_no_tcp=supervisor.runtime.why_no_tcp if supervisor else "",
            slots=self._options.slots,
            running=supervisor.running if supervisor else 0,
            idle=supervisor.idle() if supervisor else {},
            runs=self._runs,
            faults=self._faults,
        )

    async def stop(self) -> None:
        for task in (self._checker, self._restart):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        supervisor, self._supervisor = self._supervisor, None
        self._reason = "the daemon is stopping"
        if supervisor is not None:
            supervisor.runtime.zygote.on_lost = lambda: None
            await supervisor.runtime.close()
