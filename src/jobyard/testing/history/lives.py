"""Each job's life, put together from the records of all processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobyard.domain.job import Job
from jobyard.ports.job_store import Inserted
from jobyard.ports.schedule_store import Decision
from jobyard.testing.history import events as e
from jobyard.testing.history.life import UNTOLD, Change, Claim, Life, Reclaim, Settled, Span
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.timeline import Timeline


class Lives:
    def __init__(self, history: History, timeline: Timeline, final: Sequence[Job] | None) -> None:
        self.by_id: dict[str, Life] = {}
        self.timeline = timeline
        self.lost_reclaims: list[Span] = []
        for job in final or ():
            life = self._life(job.id)
            life.final, life.queue, life.group = job, job.queue, job.group
        self._inserts(history)
        self._exchanges()
        self._others(history)
        for life in self.by_id.values():
            life.claims.sort(key=lambda claim: claim.position)

    def __iter__(self) -> Iterator[Life]:
        return iter(self.by_id.values())

    def span(self, operation: RecordedOperation) -> Span:
        earliest, latest = self.timeline.earliest(operation.begin), self.timeline.latest(operation.end)
        return Span(earliest, latest, operation.begin, operation.end)

    def _life(self, job_id: str) -> Life:
        life = self.by_id.get(job_id)
        if life is None:
            life = self.by_id[job_id] = Life(job_id)
        return life

    def _inserts(self, history: History) -> None:
        for operation, question, answer in history.select(e.RecordedInsert, e.InsertReturned):
            rows = None if answer is None else {row.id: row for row in answer.jobs if row.created}
            self._handed_in(operation, question.jobs, rows, is_certain=not question.in_transaction)
        for operation, asked, judged in history.select(e.RecordedDecide, e.DecideReturned):
            for number, due in enumerate(asked.ticks):
                if due.job is None:
                    continue
                decided = None if judged is None else judged.decided[number]
                rows = None
                if decided is not None and decided.decision is not Decision.AWAY:
                    is_made = decided.job_id == due.job.id
                    rows = {due.job.id: Inserted(due.job.id, True, UNTOLD)} if is_made else {}
                self._handed_in(operation, [due.job], rows)

    def _handed_in(
        self,
        operation: RecordedOperation,
        jobs: Sequence[e.RecordedJob],
        rows: Mapping[str, Inserted] | None,
        is_certain: bool = True,
    ) -> None:
        for handed in jobs:
            row = None if rows is None else rows.get(handed.id)
            if row is None and rows is not None:
                continue
            life = self._life(handed.id)
            life.queue, life.group, life.handed = handed.queue, handed.group, handed
            if row is not None and is_certain:
                life.inserted = (self.span(operation), row)

    def _exchanges(self) -> None:
        for made, base in zip(self.timeline.exchanges, self.timeline.bases, strict=True):
            now, revision = made.answer.now, made.answer.revision
            for sent in made.accepted:
                self._life(sent.job_id).settled.append(Settled(base, sent, now, revision))
            for offset, lease in enumerate(made.answer.leases, 1):
                expires_at = now + round(made.question.lease_seconds * 1000)
                self._claim(Claim(lease, base + offset, base + offset, now, expires_at, revision))
        for operation, question in self.timeline.lost:
            for sent in question.settlements:
                self._life(sent.job_id).intents.append((self.span(operation), sent))

    def _claim(self, claim: Claim) -> None:
        life = self._life(claim.lease.job_id)
        life.queue, life.group = claim.lease.queue, claim.lease.group
        life.claims.append(claim)

    def _others(self, history: History) -> None:
        for operation, _, reclaimed in history.select(e.RecordedReclaim, e.ReclaimReturned):
            if reclaimed is None:
                self.lost_reclaims.append(self.span(operation))
                continue
            for ended in reclaimed.ended:
                self._life(ended.job_id).reclaims.append(Reclaim(self.span(operation), ended))
        for operation, change, altered in history.select(e.RecordedChange, e.ChangeReturned):
            for job_id in change.job_ids if altered is None else altered.changed:
                recorded = Change(self.span(operation), change.action, change.priority)
                self._life(job_id).changes.append(recorded)
        for operation, signal, _ in history.select(e.RecordedSignal, e.SignalReturned):
            self._life(signal.job_id).signals.append(self.span(operation))
        for operation, _, adopted in history.select(e.RecordedAdopt, e.AdoptReturned):
            if adopted is not None:
                span = self.span(operation)
                self._claim(Claim(adopted.lease, span.latest, span.earliest, adopted=True))
        for operation, extend, _ in history.select(e.RecordedExtend, e.LeasesReturned):
            # A renewal counts from its own moment and may be for less; which one won is not needed for a lower bound.
            at_least = self.timeline.now_at_least(operation.begin, extend.lease_seconds)
            for key in extend.keys:
                for claim in self._life(key.job_id).claims:
                    if claim.lease.token == key.token:
                        claim.expires_at = min(claim.expires_at, at_least)
