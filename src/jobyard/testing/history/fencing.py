"""Fencing: one live claim per job, and only its token is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.testing.history.events import AdoptReturned, LeasesReturned, RecordedAdopt, RecordedExtend, RecordedReport
from jobyard.testing.history.life import Claim, Life, Settled
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.timeline import Made
from jobyard.testing.history.violation import Violation


def check_fencing(history: History, lives: Lives) -> Iterator[Violation]:
    hidden_leases = bool(lives.timeline.lost) or any(
        answer is None for _, _, answer in history.select(RecordedAdopt, AdoptReturned)
    )
    for life in lives:
        yield from _tokens(life, hidden_leases)
        yield from _settlements(life)
        yield from _live_claims(life)
    yield from _refusals(lives)
    yield from _words(history, lives)


def _tokens(life: Life, hidden_leases: bool) -> Iterator[Violation]:
    tokens = [claim.lease.token for claim in life.claims]
    for token in {token for token in tokens if tokens.count(token) > 1}:
        yield _of(life, "token_repeated", f"has two claims with the token {token}", token=token)
    ended = [reclaim.ended.token for reclaim in life.reclaims]
    for token in set(ended):
        if ended.count(token) > 1:
            yield _of(life, "reclaimed_twice", f"had its claim {token} reclaimed twice", token=token)
        if token not in tokens and not hidden_leases:
            yield _of(life, "unknown_token", f"had a claim {token} reclaimed that was never granted", token=token)
    for claim in life.claims:
        if claim.reclaim and not claim.adopted and 0 < claim.reclaim.ended.error.at < claim.expires_at:
            early = claim.expires_at - claim.reclaim.ended.error.at
            yield _of(life, "reclaimed_early", f"lost its claim {claim.lease.token} {early} ms before its end")


def _settlements(life: Life) -> Iterator[Violation]:
    by_token = {claim.lease.token: claim for claim in life.claims}
    used_up: set[str] = set()
    last_end: Settled | None = None
    for settled in life.settled:
        sent = settled.sent
        facts = {"token": sent.token, "revision": settled.revision}
        claim = by_token.get(sent.token)
        if claim is None or settled.position < claim.since:
            yield _of(life, "unknown_token", f"was settled with {sent.token}, which was never granted", **facts)
            continue
        if any(claim.position < other.position < settled.position for other in life.claims):
            yield _of(life, "stale_token_accepted", f"was settled with the old token {sent.token}", **facts)
        if claim.reclaim and (sent.to is not State.RUNNING or claim.reclaim.span.latest <= settled.position):
            yield _of(life, "settled_after_reclaim", f"was settled with the reclaimed token {sent.token}", **facts)
        if sent.token in used_up:
            yield _of(life, "settled_twice", f"was settled twice with the token {sent.token}", **facts)
        if sent.to is not State.RUNNING:
            used_up.add(sent.token)
        if sent.to.is_final:
            if (
                last_end is not None
                and last_end.sent.token != sent.token
                and not life.may_be_changed(last_end.position, settled.position, Action.RETRY)
            ):
                yield _of(life, "ended_twice", f"ended {last_end.sent.to} and then {sent.to}", **facts)
            last_end = settled


def _live_claims(life: Life) -> Iterator[Violation]:
    for earlier, later in pairwise(life.claims):
        if not later.adopted and _still_held(life, earlier, later):
            sentence = f"was claimed as {later.lease.token} while {earlier.lease.token} held it"
            yield _of(life, "two_live_claims", sentence, revision=later.revision)


def _still_held(life: Life, earlier: Claim, later: Claim) -> bool:
    if earlier.settled is not None:
        return earlier.settled.position > later.position
    if earlier.reclaim is not None:
        return earlier.reclaim.span.earliest > later.position
    if not earlier.end_is_unknown:
        return True
    if any(sent.token == earlier.lease.token for _, sent in life.intents):
        return False
    # Only a reclaim without an answer can have ended it, and that counts a death.
    redriven = life.may_be_changed(earlier.position, later.position, Action.RETRY)
    return not redriven and later.lease.deaths <= earlier.lease.deaths


def _refusals(lives: Lives) -> Iterator[Violation]:
    timeline = lives.timeline
    placed = list(zip(timeline.exchanges, timeline.bases, strict=True))
    placed += [(made, timeline.latest(made.end)) for made in timeline.idle]
    for made, position in placed:
        for sent in made.refused:
            life = lives.by_id.get(sent.job_id)
            for claim in life.claims if life else ():
                if claim.lease.token == sent.token and _holds(claim, made, position):
                    assert life is not None
                    facts = {"token": sent.token, "revision": made.answer.revision}
                    yield _of(life, "refused_wrongly", f"had its live token {sent.token} refused", **facts)


def _holds(claim: Claim, made: Made, position: int) -> bool:
    """Whether the claim certainly held during the exchange, which came at the position or just before it."""
    if made.answer.now >= claim.expires_at:
        return False
    if claim.settled is not None:
        is_idle = not made.accepted and not made.answer.leases
        return position < claim.settled.position or (is_idle and position == claim.settled.position)
    if claim.reclaim is not None:
        return made.end < claim.reclaim.span.begin
    return not claim.end_is_unknown and position <= claim.runs_until


def _words(history: History, lives: Lives) -> Iterator[Violation]:
    heard: list[tuple[RecordedOperation, RecordedExtend | RecordedReport, LeasesReturned | None]] = []
    heard += history.select(RecordedExtend, LeasesReturned)
    heard += history.select(RecordedReport, LeasesReturned)
    for operation, question, answer in heard:
        if answer is None:
            continue
        lost = {(key.job_id, key.token) for key in answer.lost}
        earliest = lives.timeline.earliest(operation.begin)
        for key in question.keys:
            life = lives.by_id.get(key.job_id)
            if life is None or (key.job_id, key.token) in lost:
                continue
            for claim in life.claims:
                settled = claim.settled is not None and claim.settled.position < earliest
                reclaimed = claim.reclaim is not None and claim.reclaim.span.end < operation.begin
                if claim.lease.token == key.token and (settled or reclaimed):
                    yield _of(life, "stale_word_accepted", f"was spoken for with the ended token {key.token}")


def _of(life: Life, code: str, sentence: str, **data: object) -> Violation:
    return Violation(code, f"job {life.id} {sentence}", {"job_id": life.id, **data})
