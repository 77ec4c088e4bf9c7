"""The checker: an empty list of violations proves that the history kept every guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobyard.domain.job import Job, QueueSettings
from jobyard.testing.history.configuration import RecordedConfiguration
from jobyard.testing.history.endings import resolve
from jobyard.testing.history.fairness import check_fairness
from jobyard.testing.history.fencing import check_fencing
from jobyard.testing.history.instants import check_instants
from jobyard.testing.history.legality import check_legality
from jobyard.testing.history.limits import check_limits, check_pauses
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.losses import check_losses
from jobyard.testing.history.order import check_order
from jobyard.testing.history.reader import History
from jobyard.testing.history.timeline import Timeline
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import certain_waits


def check(
    history: History,
    final: Sequence[Job] | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    limits: Mapping[tuple[str, str], int] | None = None,
) -> list[Violation]:
    """Find every broken promise that the records prove.

    `final` holds all jobs of the store after the last recorded process ended; without it nothing is said about lost
    jobs. `settings` by queue and own `limits` by (queue, group) are those in force before the history began. Where a
    kill left an exchange without an answer, what it may have done is never held against the store.
    """
    timeline = Timeline(history)
    lives = Lives(history, timeline, final)
    resolve(lives)
    configuration = RecordedConfiguration(history, timeline, settings or {}, limits or {})
    waits = certain_waits(lives)
    return [
        *timeline.check(),
        *check_limits(lives, configuration),
        *check_pauses(lives, configuration),
        *check_order(lives, waits),
        *check_fairness(lives, waits, configuration),
        *check_fencing(history, lives),
        *check_legality(lives),
        *check_instants(history),
        *(check_losses(lives) if final is not None else ()),
    ]
