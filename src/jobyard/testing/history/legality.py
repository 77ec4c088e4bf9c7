"""Jobs that must not be claimed: cancelled, deleted, ended, not due, or without attempts left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jobyard.domain.instant import Instant
from jobyard.ports.admin_store import Action
from jobyard.testing.history.claims import violation_at
from jobyard.testing.history.job_traces import NO_SEQUENCE, Claim, JobTrace, JobTraces, Span
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import due_after


def check_legality(traces: JobTraces) -> Iterator[Violation]:
    for trace in traces:
        for index, claim in enumerate(trace.claims):
            if claim.adopted:
                continue
            yield from _after_change(trace, claim)
            yield from _after_end(trace, claim)
            yield from _before_due(traces, trace, claim, trace.claims[index - 1] if index else None)
        yield from _attempts(trace)


def _after_change(trace: JobTrace, claim: Claim) -> Iterator[Violation]:
    for change in trace.changed(Action.CANCEL, Action.DELETE):
        if change.span.latest > claim.position:
            continue
        if change.action is Action.DELETE:
            yield violation_at(claim, "claimed_deleted", f"job {trace.id} was claimed after it was deleted")
        elif trace.may_have_begun(change.span.latest) and not _was_cancelled_twice(trace, claim):
            continue  # a workflow is claimed once more, to end its own work
        elif not _redriven(trace, change.span, claim):
            yield violation_at(claim, "claimed_cancelled", f"job {trace.id} was claimed after it was cancelled")


def _was_cancelled_twice(trace: JobTrace, claim: Claim) -> bool:
    """While no attempt ran, so that the second request ended it at once."""
    requests = [change.span for change in trace.changed(Action.CANCEL) if change.span.latest <= claim.position]
    return any(
        first.end < second.begin
        and not any(
            other.since <= second.latest and other.may_run_until >= first.earliest
            for other in trace.claims
            if other is not claim
        )
        for first, second in pairwise(requests)
    )


def _after_end(trace: JobTrace, claim: Claim) -> Iterator[Violation]:
    finals = [one.position for one in trace.settled if one.sent.to.is_final and one.position < claim.position]
    ended = bool(finals) and not trace.may_be_changed(max(finals), claim.position, Action.RETRY)
    for reclaim in trace.reclaims:
        if trace.is_quarantined_by(reclaim) and reclaim.span.latest <= claim.position:
            ended = ended or not _redriven(trace, reclaim.span, claim)
    if ended:
        yield violation_at(claim, "claimed_after_end", f"job {trace.id} was claimed after it had ended")


def _redriven(trace: JobTrace, since: Span, claim: Claim) -> bool:
    return any(
        retry.span.end >= since.begin and retry.span.earliest <= claim.position for retry in trace.changed(Action.RETRY)
    )


def _before_due(traces: JobTraces, trace: JobTrace, claim: Claim, before: Claim | None) -> Iterator[Violation]:
    since = before.position if before else 0
    if trace.may_be_changed(since, claim.position, Action.RETRY, Action.RUN_NOW):
        return
    if trace.is_workflow and trace.may_be_changed(-1, claim.position, Action.CANCEL):
        return  # due at once, to end its own work
    due: Instant = 0
    if before is not None:
        # A signal or an end of a child job may have come before the Park.
        settled = before.settled
        if settled is not None and (settled.sent.signal is None or not trace.may_be_woken(claim.position)):
            due = due_after(settled)
    elif trace.inserted and trace.submitted:
        span, submitted = trace.inserted[0], trace.submitted
        known = traces.timeline.now_at_least(span.begin, submitted.delay_seconds) if submitted.delay_seconds else 0
        due = known if submitted.run_at is None else submitted.run_at
    if claim.now_at_most < due:
        sentence = f"job {trace.id} was claimed {due - claim.now} ms before it was due"
        yield violation_at(claim, "claimed_before_due", sentence, due=due, now=claim.now)


def _attempts(trace: JobTrace) -> Iterator[Violation]:
    for claim in trace.claims:
        lease = claim.lease
        if lease.attempt > lease.max_attempts:
            sentence = f"job {trace.id} began attempt {lease.attempt} of {lease.max_attempts}"
            yield violation_at(claim, "attempts_exceeded", sentence)
        if trace.inserted and trace.inserted[1].sequence not in (NO_SEQUENCE, lease.sequence):
            sentence = f"job {trace.id} was inserted as {trace.inserted[1].sequence}, claimed as {lease.sequence}"
            yield violation_at(claim, "sequence_changed", sentence)
    for earlier, later in pairwise(trace.claims):
        if trace.may_be_changed(earlier.position, later.position, Action.RETRY):
            continue
        expected = earlier.lease.attempt
        if earlier.settled is not None:
            expected += earlier.settled.sent.counted
        elif earlier.end_is_unknown:
            continue
        # An unrecorded claim was reclaimed, and reclaimed attempts do not count.
        if later.lease.attempt != expected:
            sentence = f"job {trace.id} began attempt {later.lease.attempt}, not {expected}"
            yield violation_at(later, "attempt_wrong", sentence)
