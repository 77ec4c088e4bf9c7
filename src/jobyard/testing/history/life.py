"""The life of one job, as far as the records tell."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, Job, State
from jobyard.domain.lease import ExpiredLease
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.testing.history.events import RecordedJob, RecordedLease, RecordedSettlement
from jobyard.testing.history.reader import NEVER

UNTOLD = 0  # the sequence of a job whose insertion does not answer it


@dataclass(slots=True)
class Span:
    """Where something without a revision may have happened; `begin` and `end` are its bracket in nanoseconds."""

    earliest: int
    latest: int
    begin: int
    end: int

    @property
    def is_certain(self) -> bool:
        return self.end != NEVER


@dataclass(slots=True)
class Settled:
    """An accepted settlement."""

    position: int
    sent: RecordedSettlement
    now: Instant
    revision: int


@dataclass(slots=True)
class Reclaim:
    span: Span
    ended: ExpiredLease


@dataclass(slots=True)
class Change:
    span: Span
    action: Action
    priority: int


@dataclass(slots=True)
class Claim:
    lease: RecordedLease
    position: int  # certainly from here on
    since: int  # perhaps from here on; differs for adopted jobs only
    now: Instant = 0
    expires_at: Instant = 0
    revision: int = 0
    adopted: bool = False
    settled: Settled | None = None  # the first accepted settlement that ended it
    reclaim: Reclaim | None = None
    runs_until: int = 0  # certainly running before this position
    may_run_until: int = 0  # certainly not running from this position on
    end_is_unknown: bool = False  # it may have ended through something whose result was not recorded


@dataclass(slots=True)
class Gap:
    """Between two recorded claims of a job; `hidden` when one that was not recorded may lie in it."""

    before: Claim | None
    after: Claim | None
    since: int
    until: int
    hidden: bool = False


@dataclass(slots=True)
class Life:
    id: str
    queue: str | None = None
    group: str | None = None
    handed: RecordedJob | None = None
    inserted: tuple[Span, Inserted] | None = None  # acknowledged
    claims: list[Claim] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    reclaims: list[Reclaim] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    signals: list[Span] = field(default_factory=list)
    intents: list[tuple[Span, RecordedSettlement]] = field(default_factory=list)  # settlements without an answer
    gaps: list[Gap] = field(default_factory=list)
    final: Job | None = None

    def changed(self, *actions: Action) -> Iterator[Change]:
        return (change for change in self.changes if change.action in actions)

    def may_be_changed(self, since: int, until: int, *actions: Action) -> bool:
        """Whether such a change may lie between the two positions."""
        return any(change.span.latest > since and change.span.earliest <= until for change in self.changed(*actions))

    def gap_at(self, position: int) -> Gap:
        """The gap that ends with the first claim at or after the position."""
        return self.gaps[bisect_left(self.claims, position, key=lambda claim: claim.position)]

    def is_quarantined_by(self, reclaim: Reclaim) -> bool:
        return reclaim.ended.error.ending is Ending.QUARANTINED

    def may_be_cancelled(self) -> bool:
        return any(True for _ in self.changed(Action.CANCEL))

    def ends(self) -> Iterator[tuple[int, State]]:
        """Where it certainly or perhaps became final, at the latest, by something recorded."""
        for settled in self.settled:
            if settled.sent.to.is_final or self.may_be_cancelled():
                yield settled.position, settled.sent.to
        for reclaim in self.reclaims:
            if self.is_quarantined_by(reclaim) or self.may_be_cancelled():
                yield reclaim.span.latest, State.FAILED
