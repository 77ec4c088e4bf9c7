"""Capabilities of the sandboxes of live workers: published in the store, and expired when a worker stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jobyard.domain.explain import Cause
from jobyard.domain.job import Job, State
from jobyard.executors.sandbox.program import KIND
from jobyard.ports.record_store import RecordStore
from jobyard.sandbox.protocol import Language, SandboxState, Tier

COLLECTION = "jobyard.sandboxes"
PUBLISH_EVERY_SECONDS = 10.0
# Long enough that a worker that restarts stays listed.
KNOWN_SECONDS = 35.0
CACHE_SECONDS = 2.0


class SandboxInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox, as its worker publishes it."""

    worker: str
    host: str = ""
    tier: Tier | None = None  # None: it runs no programs
    reason: str = ""
    details: str = ""  # for operators only
    slots: int = 0
    languages: tuple[Language, ...] = ()
    missing: dict[str, str] = {}
    checking: tuple[str, ...] = ()  # languages whose self-test has not ended; programs in them wait for it


def sandbox_info(worker: str, host: str, state: SandboxState | None, reason: str, details: str = "") -> SandboxInfo:
    if state is None:
        return SandboxInfo(worker=worker, host=host, reason=reason, details=details)
    return SandboxInfo(
        worker=worker,
        host=host,
        tier=state.tier,
        reason=state.reason,
        slots=state.slots,
        languages=state.languages if state.tier is not None else (),
        missing=state.missing,
        checking=state.checking,
    )


async def publish_sandbox(records: RecordStore, info: SandboxInfo) -> None:
    await records.put(COLLECTION, info.worker, msgspec.json.encode(info), expire_seconds=KNOWN_SECONDS)


async def known_sandboxes(records: RecordStore) -> list[SandboxInfo]:
    return [msgspec.json.decode(record.data, type=SandboxInfo) for record in await records.fetch_all(COLLECTION)]


class Sandboxes:
    """The known sandboxes, cached for a moment, because every submitted program needs them."""

    def __init__(self, records: RecordStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._clock = clock
        self._known: list[SandboxInfo] = []
        self._read_at: float | None = None

    async def known(self, *, fresh: bool = False) -> Sequence[SandboxInfo]:
        now = self._clock()
        if fresh or self._read_at is None or now - self._read_at >= CACHE_SECONDS:
            self._known = await known_sandboxes(self._records)
            self._read_at = now
        return self._known

    async def language(self, name: str) -> tuple[Language, Tier] | None:
        """The language with the best tier for it; None if no sandbox offers it."""
        found = best_languages(await self.known()).get(name)
        if found is None:
            found = best_languages(await self.known(fresh=True)).get(name)  # it may have been published since
        return found

    async def tier_of(self, language: str) -> Tier | None:
        """The best tier for a language; None if no sandbox offers it."""
        found = await self.language(language)
        return None if found is None else found[1]


def best_languages(known: Sequence[SandboxInfo]) -> dict[str, tuple[Language, Tier]]:
    """Each language with the best tier that offers it, by name."""
    found: dict[str, tuple[Language, Tier]] = {}
    for info in sorted(known, key=lambda info: (info.tier or "Z", info.worker)):
        if info.tier is not None:
            for language in info.languages:
                found.setdefault(language.name, (language, info.tier))
    return dict(sorted(found.items()))


def why_unavailable(known: Sequence[SandboxInfo]) -> str:
    """Why no program can run."""
    if not known:
        return "No live worker has a sandbox."
    reasons = " ".join(sorted({info.reason for info in known if info.reason}))
    return f"No worker can run programs: {reasons}" if reasons else "No language passed its self-test."


async def missing_sandbox(records: RecordStore, job: Job) -> tuple[Cause, ...]:
    """Why no sandbox can run a waiting program; empty for all other jobs."""
    if job.kind != KIND or job.state is not State.PENDING:
        return ()
    known = await known_sandboxes(records)
    names = best_languages(known)
    try:
        language = str(msgspec.json.decode(job.payload, type=dict[str, Any]).get("language", ""))
    except msgspec.DecodeError:
        return ()  # not submitted to /execute
    if language in names:
        return ()
    why = f"no live worker runs {language}" if names else why_unavailable(known).rstrip(".")
    return (Cause("no_sandbox", why[0].lower() + why[1:], {"language": language}),)
