"""Where each claim ended, and between which claims there may be an unrecorded one."""

from __future__ import annotations

from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.job_traces import Claim, Gap, JobTrace, JobTraces


def resolve(traces: JobTraces) -> None:
    first_lost = _first_lost_claims(traces)
    anywhere = min(first_lost.values(), default=None)
    for trace in traces:
        _connect(trace)
        _bound(trace, traces)
        lost = first_lost.get(None)
        mine = first_lost.get(trace.queue) if trace.queue is not None else anywhere
        known = [position for position in (lost, mine) if position is not None]
        trace.gaps = _gaps(trace, min(known, default=None), traces.timeline.end)


def _first_lost_claims(traces: JobTraces) -> dict[str | None, int]:
    """The position from which on there may be unrecorded claims, by queue; None: of every queue."""
    found: dict[str | None, int] = {}
    for operation, request in traces.timeline.lost:
        if request.wanted > 0:
            earliest = traces.timeline.earliest(operation.begin)
            for queue in request.queues or (None,):
                found[queue] = min(found.get(queue, earliest), earliest)
    return found


def _connect(trace: JobTrace) -> None:
    by_token = {claim.lease.token: claim for claim in trace.claims}
    for settled in trace.settled:
        claim = by_token.get(settled.sent.token)
        if claim and claim.settled is None and settled.sent.to is not State.RUNNING and settled.position >= claim.since:
            claim.settled = settled
    for reclaim in trace.reclaims:
        claim = by_token.get(reclaim.ended.token)
        if claim and claim.reclaim is None:
            claim.reclaim = reclaim


def _bound(trace: JobTrace, traces: JobTraces) -> None:
    for index, claim in enumerate(trace.claims, 1):
        limit = trace.claims[index].position if index < len(trace.claims) else traces.timeline.end
        if claim.settled is not None:
            claim.runs_until = claim.may_run_until = claim.settled.position
        elif claim.reclaim is not None:
            span = claim.reclaim.span
            claim.runs_until = min(limit, max(claim.position + 1, span.earliest))
            claim.may_run_until = max(claim.runs_until, min(span.latest, limit))
        else:
            claim.may_run_until = limit
            unacknowledged = [position for position in _unseen_ends(trace, claim, traces) if position <= limit]
            claim.end_is_unknown = bool(unacknowledged)
            claim.runs_until = min(limit, max(claim.position + 1, min(unacknowledged, default=limit)))


def _unseen_ends(trace: JobTrace, claim: Claim, traces: JobTraces) -> list[int]:
    token = claim.lease.token
    found = [span.earliest for span, sent in trace.intents if sent.token == token and sent.to is not State.RUNNING]
    handed_off = claim.adopted or any(settled.sent.token == token for settled in trace.settled)
    if not handed_off:
        found += [span.earliest for span in traces.lost_reclaims]
    return found


def _gaps(trace: JobTrace, lost_from: int | None, end: int) -> list[Gap]:
    gaps = []
    for before, after in zip([None, *trace.claims], [*trace.claims, None], strict=True):
        since = before.runs_until if before else (trace.inserted[0].earliest if trace.inserted else 0)
        gap = Gap(before, after, since, after.position if after else end)
        if lost_from is not None and lost_from <= gap.until and (before is None or before.runs_until <= gap.until):
            gap.hidden = not _nothing_hides(trace, gap)
        gaps.append(gap)
    return gaps


def _nothing_hides(trace: JobTrace, gap: Gap) -> bool:
    """Without a counted death there was no unrecorded claim: it can only end by a reclaim, which counts a death."""
    if trace.may_be_changed(gap.since, gap.until, Action.RETRY):
        return False
    before, after = gap.before, gap.after
    deaths = 0
    if before is not None:
        if before.settled is not None and before.settled.sent.to.is_final:
            return True
        if before.end_is_unknown:
            return False
        token = before.lease.token
        if token in trace.recorded:
            deaths = 0  # a checkpoint starts the count again
        elif any(token == other for _, other in trace.checkpoints):
            return False
        else:
            deaths = before.lease.deaths
        deaths += before.reclaim is not None
    if after is not None:
        return after.lease.deaths == deaths
    if trace.final is None or trace.final.deaths != deaths:
        return False
    still_runs = before is not None and before.settled is None and before.reclaim is None
    return still_runs or trace.final.state is not State.RUNNING
