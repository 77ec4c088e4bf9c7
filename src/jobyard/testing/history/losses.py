"""Nothing lost: every acknowledged job is there at the end, or ended and was removed."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.domain.job import State
from jobyard.domain.lease import MAX_DEATHS
from jobyard.ports.admin_store import Action
from jobyard.testing.history.life import Life
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.violation import Violation


def check_losses(lives: Lives) -> Iterator[Violation]:
    for life in lives:
        if life.final is None:
            if life.inserted and not _may_be_gone(life, lives):
                sentence = f"job {life.id} was acknowledged, never ended, and is gone"
                yield Violation("job_lost", sentence, {"job_id": life.id, "queue": life.queue, "group": life.group})
            continue
        expected = _expected(life)
        if expected is not None and life.final.state is not expected:
            sentence = f"job {life.id} is {life.final.state} in the end; its history leads to {expected}"
            data = {"job_id": life.id, "state": life.final.state, "expected": expected}
            yield Violation("final_state_wrong", sentence, data)


def _may_be_gone(life: Life, lives: Lives) -> bool:
    """Only final jobs are removed, so there must be an end, or room for one that was not recorded."""
    redriven_at = max(
        (change.span.earliest for change in life.changed(Action.RETRY) if change.span.is_certain), default=-1
    )
    if any(latest >= redriven_at for latest, _ in life.ends()):
        return True
    if any(change.span.latest >= redriven_at for change in life.changed(Action.CANCEL, Action.DELETE)):
        return True
    if any(sent.to.is_final and span.latest >= redriven_at for span, sent in life.intents):
        return True
    near_quarantine = bool(life.claims) and life.claims[-1].lease.deaths + 1 >= MAX_DEATHS
    hidden = any(gap.hidden for gap in life.gaps)
    # Two deaths that was not recorded may have led to a third.
    return bool(lives.lost_reclaims) and (near_quarantine or hidden)


def _expected(life: Life) -> State | None:
    """The state that the records lead to; None when something unrecorded may have changed it."""
    last = life.claims[-1] if life.claims else None
    since = last.position if last else -1
    if life.gaps[-1].hidden or life.may_be_changed(since, 1 << 62, Action.RETRY):
        return None
    if last is None:
        return State.PENDING if life.inserted and not life.may_be_cancelled() else None
    if last.settled is not None and last.settled.sent.to.is_final:
        return last.settled.sent.to
    if life.may_be_cancelled() or last.end_is_unknown:
        return None
    if last.settled is not None:
        return State.PENDING
    if last.reclaim is not None:
        return State.FAILED if life.is_quarantined_by(last.reclaim) else State.PENDING
    return State.RUNNING
