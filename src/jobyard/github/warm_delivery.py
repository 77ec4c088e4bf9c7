"""The configuration of a warm runner: made when the runner asks for it after it was given a job, and sent once.

Any replica answers. The configuration is never stored or logged: a response that is lost ends the runner, and its
ticket is planned again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable

import msgspec

from jobyard.domain.instant import after
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Assignment, Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import GitHubApi, JitConfig
from jobyard.github.errors import GitHubError, GitHubRateLimited, GitHubRejected, RunnerNameTaken
from jobyard.github.event_ingest import EventIngest
from jobyard.github.tickets import RETRY_SECONDS
from jobyard.ports.clock import Clock, SystemClock

log = logging.getLogger("jobyard.runners")

# A request that is answered sooner costs more of them; the entry script of the pod waits for a minute.
WAIT_SECONDS = 20.0
# How soon an assignment by another process is noticed.
POLL_SECONDS = 0.5
MAX_MINTS = 3
# As for launches: after a rejection a person has to change something.
REJECTED_SECONDS = 3600.0

OK, NOT_YET, UNAUTHORIZED, NOT_FOUND, GONE, UNAVAILABLE = 200, 204, 401, 404, 410, 503


class JitConfigResponse(msgspec.Struct, frozen=True):
    """A response as an HTTP status. `configuration` contains a private key: it is never logged or stored."""

    status: int
    configuration: str = ""

    def __repr__(self) -> str:
        return f"JitConfigResponse({self.status})"


async def always() -> bool:
    return True


class WarmDelivery:
    def __init__(
        self, settings: ManagerSettings, ingest: EventIngest, github: GitHubApi, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._runners = ingest.runners
        self._jobs = ingest.jobs
        self._github = github
        self._clock = clock or SystemClock()
        self._waiting: dict[str, asyncio.Event] = {}  # the latest request of each runner
        ingest.runners.on_assigned.append(self._assigned)

    def _assigned(self, name: str) -> None:
        if (event := self._waiting.get(name)) is not None:
            event.set()

    async def deliver(
        self,
        name: str,
        token: str,
        *,
        wait_seconds: float = WAIT_SECONDS,
        is_connected: Callable[[], Awaitable[bool]] = always,
    ) -> JitConfigResponse:
        """The configuration of the runner once it has a job; NOT_YET when the time is over before."""
        runner = await self._runners.get(name)
        if runner is None:
            return JitConfigResponse(NOT_FOUND)
        if not is_token_of(runner, token):
            return JitConfigResponse(UNAUTHORIZED)
        mine = asyncio.Event()
        if (earlier := self._waiting.get(name)) is not None:
            earlier.set()  # the connection of the earlier request was lost
        self._waiting[name] = mine
        try:
            return await self._wait(name, mine, wait_seconds, is_connected)
        finally:
            if self._waiting.get(name) is mine:
                del self._waiting[name]

    async def _wait(
        self, name: str, mine: asyncio.Event, wait_seconds: float, is_connected: Callable[[], Awaitable[bool]]
    ) -> JitConfigResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            runner = await self._runners.get(name)
            if runner is None or runner.state not in (RunnerState.WARM, RunnerState.ASSIGNED):
                return JitConfigResponse(GONE)
            if self._waiting.get(name) is not mine or not await is_connected():
                return JitConfigResponse(NOT_YET)
            if _is_due(runner) and await self._claim(runner):
                return await self._mint(runner)
            left = deadline - loop.time()
            if left <= 0:
                return JitConfigResponse(NOT_YET)
            try:
                async with asyncio.timeout(min(left, POLL_SECONDS)):
                    await mine.wait()
            except TimeoutError:
                pass
            mine.clear()

    # Registration

    async def _claim(self, runner: Runner) -> bool:
        """Whether this request, and no other one, makes the configuration."""
        now, is_mine = self._clock.now(), False

        def claim(known: Runner) -> Runner:
            nonlocal is_mine
            is_mine = _is_due(known)
            if not is_mine or known.assignment is None:
                return known
            return _with(known, minting_at=now, mints=known.assignment.mints + 1)

        await self._runners.change(runner.name, claim)
        return is_mine

    async def _mint(self, runner: Runner) -> JitConfigResponse:
        assert runner.assignment is not None
        profile = self._settings.profile(runner.profile)
        work_folder = "_work" if profile is None else profile.work_folder
        labels, group_id = runner.assignment.labels, runner.assignment.group_id
        try:
            jit = await self._github.generate_jitconfig(runner.scope, runner.name, group_id, labels, work_folder)
        except GitHubRejected as error:
            return await self._reject(runner, error)
        except RunnerNameTaken:
            # By an earlier request whose response was lost, together with its configuration.
            await self._unregister(runner)
            return await self._later(runner, "its name was taken on GitHub", RETRY_SECONDS)
        except GitHubError as error:
            wait = error.retry_after_seconds if isinstance(error, GitHubRateLimited) else RETRY_SECONDS
            return await self._later(runner, str(error), wait)
        return await self._hand_over(runner, jit)

    async def _hand_over(self, runner: Runner, jit: JitConfig) -> JitConfigResponse:
        now = self._clock.now()

        def minted(known: Runner) -> Runner:
            if known.state is not RunnerState.ASSIGNED:
                return known
            changed = msgspec.structs.replace(known, runner_id=jit.runner_id, minted_at=now)
            return _with(changed, minting_at=0).to(RunnerState.NOT_ONLINE, now)

        changed = await self._runners.change(runner.name, minted)
        if changed is None or changed.state is not RunnerState.NOT_ONLINE or changed.runner_id != jit.runner_id:
            await self._unregister(msgspec.structs.replace(runner, runner_id=jit.runner_id))
            return JitConfigResponse(GONE)
        log.info("warm runner %s got its configuration for %s", runner.name, runner.scope)
        return JitConfigResponse(OK, jit.encoded)

    async def _unregister(self, runner: Runner) -> None:
        """The reconciler tries again if GitHub fails now."""
        try:
            runner_id = runner.runner_id
            if runner_id is None:
                found = await self._github.runner_by_name(runner.scope, runner.name)
                runner_id = None if found is None else found.id
            if runner_id is not None:
                await self._github.remove_runner(runner.scope, runner_id)
        except GitHubError as error:
            log.warning("cannot remove runner %s from GitHub now: %s", runner.name, error)

    # Failures

    async def _later(self, runner: Runner, why: str, wait_seconds: float) -> JitConfigResponse:
        """Let the runner ask again, a few times; then it ends, and other launches of its kind wait."""
        changed = await self._runners.change(
            runner.name, lambda known: _with(known, minting_at=0) if known.state is RunnerState.ASSIGNED else known
        )
        log.warning("warm runner %s cannot be registered: %s", runner.name, why)
        if changed is None or changed.assignment is None or changed.assignment.mints < MAX_MINTS:
            return JitConfigResponse(UNAVAILABLE)
        reason = Reason("github_unavailable", why)
        await self._runners.close_gate(runner.scope, runner.profile, reason, self._clock.now(), wait_seconds)
        return await self._end(runner, why)

    async def _reject(self, runner: Runner, error: GitHubRejected) -> JitConfigResponse:
        until = after(self._clock.now(), REJECTED_SECONDS)
        blocked = str(Reason("rejected", str(error)))
        if runner.requested_job_id is not None:
            await self._jobs.change(
                runner.requested_job_id,
                lambda known: msgspec.structs.replace(known, blocked=blocked, blocked_until=until),
            )
        return await self._end(runner, str(error))

    async def _end(self, runner: Runner, why: str) -> JitConfigResponse:
        """The pod ends by itself; the reconciler settles the ticket then."""
        now = self._clock.now()
        await self._runners.change(
            runner.name,
            lambda known: known.to(RunnerState.TERMINATING, now, why) if known.state is RunnerState.ASSIGNED else known,
        )
        return JitConfigResponse(GONE)


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def is_token_of(runner: Runner, token: str) -> bool:
    return bool(runner.warm_token) and hmac.compare_digest(hashed(token), runner.warm_token)


def _is_due(runner: Runner) -> bool:
    """Whether the configuration can be made now."""
    assignment = runner.assignment
    is_open = assignment is not None and assignment.is_ready and not assignment.minting_at
    return runner.state is RunnerState.ASSIGNED and is_open


def _with(runner: Runner, **fields: int) -> Runner:
    assignment = runner.assignment or Assignment(group_id=0, labels=())
    return msgspec.structs.replace(runner, assignment=msgspec.structs.replace(assignment, **fields))
