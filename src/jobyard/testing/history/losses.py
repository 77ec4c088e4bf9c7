"""Lost jobs: each acknowledged job must exist at the end, or have ended and been removed."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.domain.job import State
from jobyard.domain.lease import MAX_DEATHS
from jobyard.ports.admin_store import Action
from jobyard.testing.history.job_traces import JobTrace, JobTraces
from jobyard.testing.history.violation import Violation


def check_losses(traces: JobTraces) -> Iterator[Violation]:
    for trace in traces:
        if trace.final is None:
            if trace.inserted and not _may_be_gone(trace, traces):
                sentence = f"job {trace.id} was acknowledged, never ended, and is missing"
                yield Violation("job_lost", sentence, {"job_id": trace.id, "queue": trace.queue, "group": trace.group})
            continue
        expected = _expected(trace)
        if expected is not None and trace.final.state is not expected:
            sentence = f"job {trace.id} is {trace.final.state} at the end; its history leads to {expected}"
            data = {"job_id": trace.id, "state": trace.final.state, "expected": expected}
            yield Violation("final_state_wrong", sentence, data)


def _may_be_gone(trace: JobTrace, traces: JobTraces) -> bool:
    """Only final jobs are removed, so the job must have ended, perhaps by something unrecorded."""
    redriven_at = max(
        (change.span.earliest for change in trace.changed(Action.RETRY) if change.span.is_certain), default=-1
    )
    if any(latest >= redriven_at for latest, _ in trace.ends()):
        return True
    if any(change.span.latest >= redriven_at for change in trace.changed(Action.CANCEL, Action.DELETE)):
        return True
    if any(sent.to.is_final and span.latest >= redriven_at for span, sent in trace.intents):
        return True
    near_quarantine = bool(trace.claims) and trace.claims[-1].lease.deaths + 1 >= MAX_DEATHS
    hidden = any(gap.hidden for gap in trace.gaps)
    # Unrecorded deaths may have led to the quarantine.
    return bool(traces.lost_reclaims) and (near_quarantine or hidden)


def _expected(trace: JobTrace) -> State | None:
    """The state that the records lead to; None if something unrecorded may have changed it."""
    last = trace.claims[-1] if trace.claims else None
    since = last.position if last else -1
    if trace.gaps[-1].hidden or trace.may_be_changed(since, 1 << 62, Action.RETRY):
        return None
    if last is None:
        return State.PENDING if trace.inserted and not trace.may_be_cancelled() else None
    if last.settled is not None and last.settled.sent.to.is_final:
        return last.settled.sent.to
    if trace.may_be_cancelled() or last.end_is_unknown:
        return None
    if last.settled is not None:
        return State.PENDING
    if last.reclaim is not None:
        return State.FAILED if trace.is_quarantined_by(last.reclaim) else State.PENDING
    return State.RUNNING
