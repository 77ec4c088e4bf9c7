"""The daemon without its socket: the tier it found, the languages that work, what happens when the zygote is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from jobyard.sandbox.daemon import languages as definitions
from jobyard.sandbox.daemon import tiers
from jobyard.sandbox.daemon.language_selftest import test_languages
from jobyard.sandbox.daemon.program_run import OnOutput
from jobyard.sandbox.daemon.supervisor import NOT_BEGUN, RunSupervisor
from jobyard.sandbox.protocol import Fault, Language, RunFinished, RunRejected, RunRequest, SandboxState, Tier

_log = logging.getLogger(__name__)
_TRY_AGAIN_S = 5.0
_SOON_S = (0.1, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class DaemonOptions:
    min_tier: Tier = Tier.A
    tier: Tier | None = None  # this one or none, for tests and trials
    slots: int = 2
    languages: Path | None = None
    pool: int | None = None  # None: what each language says
    without: tuple[str, ...] = ()  # a layer left out, for the tests of the others


class SandboxDaemon:
    def __init__(self, options: DaemonOptions) -> None:
        self._options = options
        self._definitions = definitions.load(options.languages)
        self._supervisor: RunSupervisor | None = None
        self._reason = "it has not started yet"
        self._languages: tuple[Language, ...] = ()
        self._missing: dict[str, str] = {}
        self._opened = asyncio.Event()  # there is a supervisor, or a reason why there is none
        self._restart: asyncio.Task[None] | None = None
        self._runs = self._faults = 0

    async def start(self) -> None:
        """Find the tier and the languages; a failure leaves a daemon that refuses and says why."""
        await self._open(self._options.tier)

    async def _open(self, tier: Tier | None, before: RunSupervisor | None = None) -> None:
        if not await self._try(tier, before):
            _log.error("refusing to run programs: %s", self._reason)
            self._opened.set()
            self._restart = asyncio.create_task(self._open_later(tier, before))

    async def _try(self, tier: Tier | None, before: RunSupervisor | None) -> bool:
        options = self._options
        try:
            choice = await tiers.choose(
                self._definitions, options.min_tier, tier, pool=options.pool, without=options.without
            )
        except tiers.TierUnavailable as error:
            self._reason = str(error)
            return False
        supervisor = before
        if supervisor is None:
            supervisor = RunSupervisor(choice.runtime, self._definitions, options.slots)
            self._languages, self._missing = await test_languages(supervisor, self._definitions)
        supervisor.runtime = choice.runtime
        supervisor.offer(self._languages)
        self._reason = choice.reason
        self._supervisor = supervisor
        choice.runtime.zygote.on_lost = self._on_lost
        self._opened.set()
        _log.info("tier %s; %s", choice.runtime.tier, ", ".join(language.name for language in self._languages))
        if not choice.runtime.zygote.is_alive:
            self._on_lost()
        return True

    async def _open_later(self, tier: Tier | None, before: RunSupervisor | None) -> None:
        await asyncio.sleep(_TRY_AGAIN_S)
        await self._open(tier, before)

    def _on_lost(self) -> None:
        """Runs in flight are told; those to come wait for the next zygote, which must pass the canaries again."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        _log.warning("the zygote was lost")
        self._reason = "the zygote was lost"
        self._opened.clear()
        self._restart = asyncio.create_task(self._replace(supervisor))

    async def _replace(self, supervisor: RunSupervisor) -> None:
        tier = supervisor.runtime.tier
        await supervisor.runtime.close()
        for seconds in _SOON_S:  # what was to be had a moment ago will be: whoever waits goes on waiting
            if await self._try(tier, supervisor):
                return
            _log.warning("no new zygote yet: %s", self._reason)
            await asyncio.sleep(seconds)
        await self._open(tier, supervisor)

    async def run(self, request: RunRequest, tell: OnOutput | None = None) -> RunFinished | RunRejected:
        while self._supervisor is None and not self._opened.is_set():
            await self._opened.wait()
        supervisor = self._supervisor
        answer: RunFinished | RunRejected
        if supervisor is None:
            answer = RunRejected(id=request.id, fault=Fault.SANDBOX_UNAVAILABLE, message=self._reason)
        else:
            answer = await supervisor.run(request, tell)
            if isinstance(answer, RunRejected) and answer.message == NOT_BEGUN:
                await self._opened.wait()  # the zygote was lost before it got the order: the next one will do
                answer = await (self._supervisor or supervisor).run(request, tell)
        self._runs += 1
        self._faults += isinstance(answer, RunRejected)
        return answer

    def state(self) -> SandboxState:
        supervisor = self._supervisor
        return SandboxState(
            tier=supervisor.runtime.tier if supervisor else None,
            reason=self._reason,
            languages=self._languages if supervisor else (),
            missing=self._missing,
            slots=self._options.slots,
            running=supervisor.running if supervisor else 0,
            idle=supervisor.idle() if supervisor else {},
            runs=self._runs,
            faults=self._faults,
        )

    async def stop(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restart
        supervisor, self._supervisor = self._supervisor, None
        self._reason = "it is stopping"
        if supervisor is not None:
            supervisor.runtime.zygote.on_lost = lambda: None
            await supervisor.runtime.close()
