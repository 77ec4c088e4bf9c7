"""Violations of the guarantees, and their codes."""

from __future__ import annotations

from typing import Any

import msgspec

CODES = {
    "revision_repeated": "two exchanges that changed something have the same revision",
    "revision_order": "an exchange that began after another had ended has the lower revision",
    "group_limit_exceeded": "a job was claimed although its group was full",
    "queue_limit_exceeded": "a job was claimed although its queue was full",
    "claimed_while_paused": "a job was claimed although its queue or group was paused",
    "order_violated": "a job was claimed before another of its group that comes first",
    "group_passed_twice": "another group was served twice while this one was waiting and had room",
    "claimed_before_due": "a job was claimed before it was due",
    "claimed_cancelled": "a job was claimed after it was cancelled",
    "claimed_deleted": "a job was claimed after it was deleted",
    "claimed_after_end": "a job was claimed after it had ended, without being retried",
    "two_live_claims": "a job was claimed while an earlier claim on it still held",
    "token_repeated": "two claims of a job have the same token",
    "unknown_token": "a token was accepted or reclaimed that was never granted",
    "stale_token_accepted": "a settlement was accepted although a later claim held the job",
    "settled_after_reclaim": "a settlement was accepted and its lease reclaimed as well",
    "reclaimed_twice": "one lease was reclaimed twice",
    "settled_twice": "two settlements of one claim were accepted",
    "ended_twice": "a job ended twice, without being retried in between",
    "stale_renewal_accepted": "a renewal or report was accepted after the claim had ended",
    "refused_wrongly": "a settlement was refused although its token held an unexpired lease",
    "reclaimed_early": "a lease was reclaimed before it expired",
    "job_lost": "an acknowledged job is missing although it never ended",
    "final_state_wrong": "the last state of a job does not follow from its history",
    "attempts_exceeded": "a job had more attempts than its maximum",
    "attempt_wrong": "the number of an attempt does not follow from the one before",
    "tick_decided_twice": "one instant of a schedule was decided twice",
    "tick_went_back": "an instant of a schedule was decided after a later one",
    "sequence_changed": "the sequence of a claim is not the one that the insert returned",
}


class Violation(msgspec.Struct, frozen=True):
    code: str  # one of CODES
    sentence: str
    data: dict[str, Any]

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"
