"""Durations and seeded faults of the fake."""

from __future__ import annotations

import random

import msgspec

HOUR = 3600.0
DAY = 86400.0


class Timings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Durations in seconds. The values that GitHub does not document are marked so."""

    token_lifetime: float = HOUR
    # Undocumented; reports range from 5 minutes to an hour.
    jit_config_lifetime: float = HOUR
    # Online without a job, then removed. Undocumented; None keeps it.
    idle_removal: float | None = 300.0
    # A runner that was connected and went away without a job. Documented as one day for ephemeral runners.
    offline_removal: float = DAY
    assignment_timeout: float = 60.0
    # From a free runner and a matching job to the assignment, and from there to the start of the job.
    assignment_delay: float = 0.0
    start_delay: float = 0.0
    queue_limit: float = DAY
    # A killed runner is shown as online for this long; a job assigned meanwhile is not taken.
    session_lost: float = 30.0
    # A job on a killed runner fails after this; `Faults.long_busy` replaces it with `long_busy`.
    job_lost: float = 60.0
    long_busy: float = 600.0
    webhook_timeout: float = 30.0
    delivery_retention: float = 7 * DAY


class Faults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Probabilities from 0 to 1, all off by default, and the seconds that belong to them."""

    # Webhooks. A dropped one leaves no delivery record; a failed one is recorded and can be redelivered.
    webhook_dropped: float = 0.0
    webhook_failed: float = 0.0
    webhook_duplicated: float = 0.0
    webhook_delayed: float = 0.0
    webhook_delay_seconds: float = 60.0
    # A small delay that lets later events overtake this one.
    webhook_reordered: float = 0.0
    webhook_reorder_seconds: float = 5.0
    organization_omitted: float = 0.0
    # A job cancelled before it ran names runner 0 with an empty name instead of null.
    zero_runner: float = 0.0

    # REST calls.
    lost_before: float = 0.0
    lost_after: float = 0.0
    unauthorized: float = 0.0
    primary_limit: float = 0.0
    secondary_limit: float = 0.0
    secondary_without_retry_after: float = 0.0
    limit_seconds: float = 60.0
    server_error: float = 0.0
    server_error_after: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 10.0
    hanging: float = 0.0

    # Runners.
    long_busy: float = 0.0
    # The program of a removed runner is not told and keeps listening.
    zombie: float = 0.0

    def hits(self, name: str, rng: random.Random) -> bool:
        """Draw for one fault. A fault that is off draws nothing, so it does not change the sequence."""
        probability = float(getattr(self, name))
        return probability > 0.0 and rng.random() < probability
