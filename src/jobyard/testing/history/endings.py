"""Where each claim ended, and between which claims one that was not recorded may hide."""

from __future__ import annotations

from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.life import Claim, Gap, Life
from jobyard.testing.history.lives import Lives


def resolve(lives: Lives) -> None:
    first_lost = _first_lost_claims(lives)
    anywhere = min(first_lost.values(), default=None)
    for life in lives:
        _connect(life)
        _bound(life, lives)
        lost = first_lost.get(None)
        mine = first_lost.get(life.queue) if life.queue is not None else anywhere
        known = [position for position in (lost, mine) if position is not None]
        life.gaps = _gaps(life, min(known, default=None), lives.timeline.end)


def _first_lost_claims(lives: Lives) -> dict[str | None, int]:
    """From where on each queue may hold claims that was not recorded; None: every queue."""
    found: dict[str | None, int] = {}
    for operation, question in lives.timeline.lost:
        if question.wanted > 0:
            earliest = lives.timeline.earliest(operation.begin)
            for queue in question.queues or (None,):
                found[queue] = min(found.get(queue, earliest), earliest)
    return found


def _connect(life: Life) -> None:
    by_token = {claim.lease.token: claim for claim in life.claims}
    for settled in life.settled:
        claim = by_token.get(settled.sent.token)
        if claim and claim.settled is None and settled.sent.to is not State.RUNNING and settled.position >= claim.since:
            claim.settled = settled
    for reclaim in life.reclaims:
        claim = by_token.get(reclaim.ended.token)
        if claim and claim.reclaim is None:
            claim.reclaim = reclaim


def _bound(life: Life, lives: Lives) -> None:
    for index, claim in enumerate(life.claims, 1):
        limit = life.claims[index].position if index < len(life.claims) else lives.timeline.end
        if claim.settled is not None:
            claim.runs_until = claim.may_run_until = claim.settled.position
        elif claim.reclaim is not None:
            span = claim.reclaim.span
            claim.runs_until = min(limit, max(claim.position + 1, span.earliest))
            claim.may_run_until = max(claim.runs_until, min(span.latest, limit))
        else:
            claim.may_run_until = limit
            unacknowledged = [position for position in _unseen_ends(life, claim, lives) if position <= limit]
            claim.end_is_unknown = bool(unacknowledged)
            claim.runs_until = min(limit, max(claim.position + 1, min(unacknowledged, default=limit)))


def _unseen_ends(life: Life, claim: Claim, lives: Lives) -> list[int]:
    token = claim.lease.token
    found = [span.earliest for span, sent in life.intents if sent.token == token and sent.to is not State.RUNNING]
    handed_off = claim.adopted or any(settled.sent.token == token for settled in life.settled)
    if not handed_off:
        found += [span.earliest for span in lives.lost_reclaims]
    return found


def _gaps(life: Life, lost_from: int | None, end: int) -> list[Gap]:
    gaps = []
    for before, after in zip([None, *life.claims], [*life.claims, None], strict=True):
        since = before.runs_until if before else (life.inserted[0].earliest if life.inserted else 0)
        gap = Gap(before, after, since, after.position if after else end)
        if lost_from is not None and lost_from <= gap.until and (before is None or before.runs_until <= gap.until):
            gap.hidden = not _nothing_hides(life, gap)
        gaps.append(gap)
    return gaps


def _nothing_hides(life: Life, gap: Gap) -> bool:
    """A claim that was not recorded ends by being reclaimed, and that counts a death: no death, no such claim."""
    if life.may_be_changed(gap.since, gap.until, Action.RETRY):
        return False
    before, after = gap.before, gap.after
    deaths = 0
    if before is not None:
        if before.settled is not None and before.settled.sent.to.is_final:
            return True
        if before.end_is_unknown:
            return False
        deaths = before.lease.deaths + (before.reclaim is not None)
    if after is not None:
        return after.lease.deaths == deaths
    if life.final is None or life.final.deaths != deaths:
        return False
    still_runs = before is not None and before.settled is None and before.reclaim is None
    return still_runs or life.final.state is not State.RUNNING
