"""What the rules about claims have in common."""

from __future__ import annotations

from jobyard.testing.history.life import Claim
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import Wait

GroupKey = tuple[str, str | None]


def claims_in_order(lives: Lives) -> list[Claim]:
    found = [claim for life in lives for claim in life.claims if not claim.adopted]
    found.sort(key=lambda claim: claim.position)
    return found


def group_of(claim: Claim) -> GroupKey:
    return (claim.lease.queue, claim.lease.group)


def group_waiting(wait: Wait) -> GroupKey:
    assert wait.life.queue is not None
    return (wait.life.queue, wait.life.group)


def violation_at(claim: Claim, code: str, sentence: str, **data: object) -> Violation:
    facts = {"job_id": claim.lease.job_id, "revision": claim.revision, "queue": claim.lease.queue}
    return Violation(code, f"{sentence} (revision {claim.revision})", facts | {"group": claim.lease.group} | data)
