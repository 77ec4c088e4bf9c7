"""What may be claimed at all: not what was cancelled, deleted, ended, not due, or tried too often."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jobyard.domain.instant import Instant
from jobyard.ports.admin_store import Action
from jobyard.testing.history.claims import violation_at
from jobyard.testing.history.life import UNTOLD, Claim, Life, Span
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import due_after


def check_legality(lives: Lives) -> Iterator[Violation]:
    for life in lives:
        for index, claim in enumerate(life.claims):
            if claim.adopted:
                continue
            yield from _after_people(life, claim)
            yield from _after_end(life, claim)
            yield from _before_due(lives, life, claim, life.claims[index - 1] if index else None)
        yield from _attempts(life)


def _after_people(life: Life, claim: Claim) -> Iterator[Violation]:
    for change in life.changed(Action.CANCEL, Action.DELETE):
        if change.span.latest > claim.position:
            continue
        if change.action is Action.DELETE:
            yield violation_at(claim, "claimed_deleted", f"job {life.id} was claimed after it was deleted")
        elif not _redriven(life, change.span, claim):
            yield violation_at(claim, "claimed_cancelled", f"job {life.id} was claimed after it was cancelled")


def _after_end(life: Life, claim: Claim) -> Iterator[Violation]:
    finals = [one.position for one in life.settled if one.sent.to.is_final and one.position < claim.position]
    ended = bool(finals) and not life.may_be_changed(max(finals), claim.position, Action.RETRY)
    for reclaim in life.reclaims:
        if life.is_quarantined_by(reclaim) and reclaim.span.latest <= claim.position:
            ended = ended or not _redriven(life, reclaim.span, claim)
    if ended:
        yield violation_at(claim, "claimed_after_end", f"job {life.id} was claimed after it had ended")


def _redriven(life: Life, since: Span, claim: Claim) -> bool:
    return any(
        retry.span.end >= since.begin and retry.span.earliest <= claim.position for retry in life.changed(Action.RETRY)
    )


def _before_due(lives: Lives, life: Life, claim: Claim, before: Claim | None) -> Iterator[Violation]:
    since = before.position if before else 0
    if life.may_be_changed(since, claim.position, Action.RETRY, Action.RUN_NOW):
        return
    due: Instant = 0
    if before is not None:
        # A signal may have been remembered for the Park that came later.
        if before.settled is not None and (before.settled.sent.signal is None or not life.signals):
            due = due_after(before.settled)
    elif life.inserted and life.handed:
        span, handed = life.inserted[0], life.handed
        known = lives.timeline.now_at_least(span.begin, handed.delay_seconds) if handed.delay_seconds else 0
        due = known if handed.run_at is None else handed.run_at
    if claim.now < due:
        sentence = f"job {life.id} was claimed {due - claim.now} ms before its time"
        yield violation_at(claim, "claimed_before_due", sentence, due=due, now=claim.now)


def _attempts(life: Life) -> Iterator[Violation]:
    for claim in life.claims:
        lease = claim.lease
        if lease.attempt > lease.max_attempts:
            sentence = f"job {life.id} began attempt {lease.attempt} of {lease.max_attempts}"
            yield violation_at(claim, "attempts_exceeded", sentence)
        if life.inserted and life.inserted[1].sequence not in (UNTOLD, lease.sequence):
            sentence = f"job {life.id} was inserted as {life.inserted[1].sequence}, claimed as {lease.sequence}"
            yield violation_at(claim, "place_changed", sentence)
    for earlier, later in pairwise(life.claims):
        if life.may_be_changed(earlier.position, later.position, Action.RETRY):
            continue
        expected = earlier.lease.attempt
        if earlier.settled is not None:
            expected += earlier.settled.sent.counted
        elif earlier.end_is_unknown:
            continue
        # A claim that was not recorded was reclaimed, and reclaimed attempts do not count.
        if later.lease.attempt != expected:
            sentence = f"job {life.id} began attempt {later.lease.attempt}, not {expected}"
            yield violation_at(later, "attempt_wrong", sentence)
