"""The checker of recorded histories: an empty list of violations means that every guarantee held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobyard.domain.job import Job, QueueSettings
from jobyard.testing.history.claims import check_limits, check_order, check_pauses
from jobyard.testing.history.configuration import RecordedConfiguration
from jobyard.testing.history.endings import resolve
from jobyard.testing.history.fairness import check_fairness
from jobyard.testing.history.fencing import check_fencing
from jobyard.testing.history.job_traces import JobTraces
from jobyard.testing.history.legality import check_legality
from jobyard.testing.history.losses import check_losses
from jobyard.testing.history.reader import History
from jobyard.testing.history.ticks import check_ticks
from jobyard.testing.history.timeline import Timeline
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import certain_waits


def check(
    history: History,
    final: Sequence[Job] | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    limits: Mapping[tuple[str, str], int] | None = None,
) -> list[Violation]:
    """Find every violation that the records prove.

    `final` holds all jobs of the store after the last recorded process ended; without it, lost jobs are not checked.
    `settings` by queue and own `limits` by (queue, group) are those in force before the history began. The possible
    effects of an exchange without a recorded response are never reported as violations.
    """
    timeline = Timeline(history)
    traces = JobTraces(history, timeline, final)
    resolve(traces)
    configuration = RecordedConfiguration(history, timeline, settings or {}, limits or {})
    waits = certain_waits(traces)
    return [
        *timeline.check(),
        *check_limits(traces, configuration),
        *check_pauses(traces, configuration),
        *check_order(traces, waits),
        *check_fairness(traces, waits, configuration),
        *check_fencing(history, traces),
        *check_legality(traces),
        *check_ticks(history),
        *(check_losses(traces) if final is not None else ()),
    ]
