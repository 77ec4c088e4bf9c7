"""The numbers of a history, for a table of results."""

from __future__ import annotations

import msgspec

from jobyard.testing.history import events as e
from jobyard.testing.history.reader import History
from jobyard.testing.history.timeline import Timeline


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    inserted: int
    claims: int
    accepted: int
    refused: int
    reclaimed: int
    exchanges: int
    unanswered: int  # verbs that a kill or an error left without an answer
    torn: int


def summary(history: History) -> Summary:
    timeline = Timeline(history)
    made = timeline.exchanges + timeline.idle
    stored = [answer for _, _, answer in history.select(e.RecordedInsert, e.InsertReturned) if answer]
    judged = [answer for _, _, answer in history.select(e.RecordedDecide, e.DecideReturned) if answer]
    fired = [one for answer in judged for one in answer.decided if one.verdict is not None and one.verdict.has_job]
    reclaimed = [answer for _, _, answer in history.select(e.RecordedReclaim, e.ReclaimReturned) if answer]
    return Summary(
        processes=history.processes,
        inserted=sum(row.created for answer in stored for row in answer.jobs) + len(fired),
        claims=sum(len(one.answer.leases) for one in made),
        accepted=sum(len(one.accepted) for one in made),
        refused=sum(len(one.refused) for one in made),
        reclaimed=sum(len(answer.ended) for answer in reclaimed),
        exchanges=len(made),
        unanswered=sum(operation.answer is None for operation in history.operations),
        torn=history.torn,
    )
