"""Fencing: one live claim per job, and only its token is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.events import (
    AdoptReturned,
    LeasesReturned,
    RecordedAdopt,
    RecordedCheckpoint,
    RecordedExtend,
    RecordedReport,
)
from jobyard.testing.history.job_traces import Claim, JobTrace, JobTraces, Settled
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.timeline import AnsweredExchange
from jobyard.testing.history.violation import Violation


def check_fencing(history: History, traces: JobTraces) -> Iterator[Violation]:
    hidden_leases = bool(traces.timeline.lost) or any(
        response is None for _, _, response in history.select(RecordedAdopt, AdoptReturned)
    )
    for trace in traces:
        yield from _tokens(trace, hidden_leases)
        yield from _settlements(trace)
        yield from _live_claims(trace)
    yield from _refusals(traces)
    yield from _renewals(history, traces)


def _tokens(trace: JobTrace, hidden_leases: bool) -> Iterator[Violation]:
    tokens = [claim.lease.token for claim in trace.claims]
    for token in {token for token in tokens if tokens.count(token) > 1}:
        yield _of(trace, "token_repeated", f"has two claims with the token {token}", token=token)
    ended = [reclaim.ended.token for reclaim in trace.reclaims]
    for token in set(ended):
        if ended.count(token) > 1:
            yield _of(trace, "reclaimed_twice", f"had its claim {token} reclaimed twice", token=token)
        if token not in tokens and not hidden_leases:
            yield _of(trace, "unknown_token", f"had a claim {token} reclaimed that was never granted", token=token)
    for claim in trace.claims:
        if claim.reclaim and not claim.adopted and 0 < claim.reclaim.ended.error.at < claim.expires_at:
            early = claim.expires_at - claim.reclaim.ended.error.at
            yield _of(trace, "reclaimed_early", f"lost its claim {claim.lease.token} {early} ms before it expired")


def _settlements(trace: JobTrace) -> Iterator[Violation]:
    by_token = {claim.lease.token: claim for claim in trace.claims}
    used_up: set[str] = set()
    last_end: Settled | None = None
    for settled in trace.settled:
        sent = settled.sent
        facts = {"token": sent.token, "revision": settled.revision}
        claim = by_token.get(sent.token)
        if claim is None or settled.position < claim.since:
            yield _of(trace, "unknown_token", f"was settled with {sent.token}, which was never granted", **facts)
            continue
        if any(claim.position < other.position < settled.position for other in trace.claims):
            yield _of(trace, "stale_token_accepted", f"was settled with the old token {sent.token}", **facts)
        if claim.reclaim and (sent.to is not State.RUNNING or claim.reclaim.span.latest <= settled.position):
            yield _of(trace, "settled_after_reclaim", f"was settled with the reclaimed token {sent.token}", **facts)
        if sent.token in used_up:
            yield _of(trace, "settled_twice", f"was settled twice with the token {sent.token}", **facts)
        if sent.to is not State.RUNNING:
            used_up.add(sent.token)
        if sent.to.is_final:
            if (
                last_end is not None
                and last_end.sent.token != sent.token
                and not trace.may_be_changed(last_end.position, settled.position, Action.RETRY)
            ):
                yield _of(trace, "ended_twice", f"ended {last_end.sent.to} and then {sent.to}", **facts)
            last_end = settled


def _live_claims(trace: JobTrace) -> Iterator[Violation]:
    for earlier, later in pairwise(trace.claims):
        if not later.adopted and _still_held(trace, earlier, later):
            sentence = f"was claimed as {later.lease.token} while {earlier.lease.token} held it"
            yield _of(trace, "two_live_claims", sentence, revision=later.revision)


def _still_held(trace: JobTrace, earlier: Claim, later: Claim) -> bool:
    if earlier.settled is not None:
        return earlier.settled.position > later.position
    if earlier.reclaim is not None:
        return earlier.reclaim.span.earliest > later.position
    if not earlier.end_is_unknown:
        return True
    if any(sent.token == earlier.lease.token for _, sent in trace.intents):
        return False
    # Only a reclaim without a response can have ended it, and that counts a death.
    redriven = trace.may_be_changed(earlier.position, later.position, Action.RETRY)
    return not redriven and later.lease.deaths <= earlier.lease.deaths


def _refusals(traces: JobTraces) -> Iterator[Violation]:
    timeline = traces.timeline
    placed = list(zip(timeline.exchanges, timeline.bases, strict=True))
    placed += [(exchange, timeline.latest(exchange.end)) for exchange in timeline.idle]
    for exchange, position in placed:
        for sent in exchange.refused:
            trace = traces.by_id.get(sent.job_id)
            for claim in trace.claims if trace else ():
                if claim.lease.token == sent.token and _holds(claim, exchange, position):
                    assert trace is not None
                    facts = {"token": sent.token, "revision": exchange.response.revision}
                    yield _of(trace, "refused_wrongly", f"had its valid token {sent.token} refused", **facts)


def _holds(claim: Claim, exchange: AnsweredExchange, position: int) -> bool:
    """Whether the claim was certainly valid during the exchange, which was at the position or just before it."""
    if exchange.response.now >= claim.expires_at:
        return False
    if claim.settled is not None:
        is_idle = not exchange.accepted and not exchange.response.leases
        return position < claim.settled.position or (is_idle and position == claim.settled.position)
    if claim.reclaim is not None:
        return exchange.end < claim.reclaim.span.begin
    return not claim.end_is_unknown and position <= claim.runs_until


def _renewals(history: History, traces: JobTraces) -> Iterator[Violation]:
    calls: list[
        tuple[RecordedOperation, RecordedExtend | RecordedReport | RecordedCheckpoint, LeasesReturned | None]
    ] = []
    calls += history.select(RecordedExtend, LeasesReturned)
    calls += history.select(RecordedReport, LeasesReturned)
    calls += history.select(RecordedCheckpoint, LeasesReturned)
    for operation, request, response in calls:
        if response is None:
            continue
        lost = {(key.job_id, key.token) for key in response.lost}
        earliest = traces.timeline.earliest(operation.begin)
        for key in request.keys:
            trace = traces.by_id.get(key.job_id)
            if trace is None or (key.job_id, key.token) in lost:
                continue
            for claim in trace.claims:
                settled = claim.settled is not None and claim.settled.position < earliest
                reclaimed = claim.reclaim is not None and claim.reclaim.span.end < operation.begin
                if claim.lease.token == key.token and (settled or reclaimed):
                    yield _of(trace, "stale_renewal_accepted", f"was renewed with the ended token {key.token}")


def _of(trace: JobTrace, code: str, sentence: str, **data: object) -> Violation:
    return Violation(code, f"job {trace.id} {sentence}", {"job_id": trace.id, **data})
