"""Summary of a history: its counts, for a table of results."""

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
    unanswered: int  # calls without a response, after a kill or an error
    torn: int


def summary(history: History) -> Summary:
    timeline = Timeline(history)
    exchanges = timeline.exchanges + timeline.idle
    inserts = [response for _, _, response in history.select(e.RecordedInsert, e.InsertReturned) if response]
    decides = [response for _, _, response in history.select(e.RecordedDecide, e.DecideReturned) if response]
    fired = [one for response in decides for one in response.decided if one.verdict and one.verdict.has_job]
    reclaimed = [response for _, _, response in history.select(e.RecordedReclaim, e.ReclaimReturned) if response]
    return Summary(
        processes=history.processes,
        inserted=sum(row.created for response in inserts for row in response.jobs) + len(fired),
        claims=sum(len(each.response.leases) for each in exchanges),
        accepted=sum(len(each.accepted) for each in exchanges),
        refused=sum(len(each.refused) for each in exchanges),
        reclaimed=sum(len(response.ended) for response in reclaimed),
        exchanges=len(exchanges),
        unanswered=sum(operation.response is None for operation in history.operations),
        torn=history.torn,
    )
