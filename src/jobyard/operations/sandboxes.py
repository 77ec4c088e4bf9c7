"""What the sandboxes of live workers can do: told through the store, forgotten when nobody says it any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from jobyard.ports.record_store import RecordStore
from jobyard.sandbox.protocol import Language, SandboxState, Tier

COLLECTION = "jobyard.sandboxes"
TELL_EVERY_SECONDS = 10.0
# A worker that restarts is not forgotten meanwhile.
KNOWN_SECONDS = 35.0
ASK_EVERY_SECONDS = 2.0


class SandboxInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As a worker tells it."""

    worker: str
    host: str = ""
    tier: Tier | None = None  # None: it runs nothing
    reason: str = ""
    details: str = ""  # for operators only
    slots: int = 0
    languages: tuple[Language, ...] = ()
    missing: dict[str, str] = {}


def info_of(worker: str, host: str, state: SandboxState | None, reason: str, details: str = "") -> SandboxInfo:
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
    )


async def tell(records: RecordStore, info: SandboxInfo) -> None:
    await records.put(COLLECTION, info.worker, msgspec.json.encode(info), expire_seconds=KNOWN_SECONDS)


async def told(records: RecordStore) -> list[SandboxInfo]:
    return [msgspec.json.decode(record.data, type=SandboxInfo) for record in await records.fetch_all(COLLECTION)]


class Sandboxes:
    """Asked for with every program, so what is known is kept for a moment."""

    def __init__(self, records: RecordStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._clock = clock
        self._known: list[SandboxInfo] = []
        self._asked_at: float | None = None

    async def known(self, *, anew: bool = False) -> Sequence[SandboxInfo]:
        now = self._clock()
        if anew or self._asked_at is None or now - self._asked_at >= ASK_EVERY_SECONDS:
            self._known = await told(self._records)
            self._asked_at = now
        return self._known

    async def tier_of(self, language: str) -> Tier | None:
        """The best that somebody has for it; None when nobody runs it."""
        found = best(await self.known()).get(language)
        if found is None:
            found = best(await self.known(anew=True)).get(language)  # it may have come since
        return None if found is None else found[1]


def best(known: Sequence[SandboxInfo]) -> dict[str, tuple[Language, Tier]]:
    """Each language as the best sandbox has it, by name."""
    found: dict[str, tuple[Language, Tier]] = {}
    for info in sorted(known, key=lambda info: (info.tier or "Z", info.worker)):
        if info.tier is not None:
            for language in info.languages:
                found.setdefault(language.name, (language, info.tier))
    return dict(sorted(found.items()))


def why_none(known: Sequence[SandboxInfo]) -> str:
    """Why no program can be run."""
    if not known:
        return "No live worker has a sandbox."
    reasons = " ".join(sorted({info.reason for info in known if info.reason}))
    return f"No worker can run programs now: {reasons}" if reasons else "No language passed its self-test."
