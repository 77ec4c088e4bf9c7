"""Composition of a store: each verb is bound to the part that implements it."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.ports.admin_store import JobAdminStore, QueueStore
from jobyard.ports.job_store import LeaseStore, WaitStore
from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import ScheduleStore
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import WorkflowStore


class ComposedStore:
    """Bound once, when the store is made: calling a verb of the store calls the part directly."""

    def __init__(
        self,
        leases: LeaseStore,
        notifier: WaitStore,
        jobs: JobAdminStore,
        queues: QueueStore,
        schedules: ScheduleStore,
        records: RecordStore,
        histories: WorkflowStore,
    ) -> None:
        self.extend = leases.extend
        self.report = leases.report
        self.reclaim = leases.reclaim
        self.adopt = leases.adopt
        self.signal = leases.signal
        self.wait_for_work = notifier.wait_for_work
        self.wait_for_end = notifier.wait_for_end
        self.get = jobs.get
        self.find = jobs.find
        self.change = jobs.change
        self.prune = jobs.prune
        self.configure = queues.configure
        self.set_paused = queues.set_paused
        self.set_limit = queues.set_limit
        self.remove_queue = queues.remove_queue
        self.queues = queues.queues
        self.ages = queues.ages
        self.groups = queues.groups
        self.line = queues.line
        self.position = queues.position
        self.now = schedules.now
        self.arm = schedules.arm
        self.disarm = schedules.disarm
        self.armed = schedules.armed
        self.decide = schedules.decide
        self.ticks = schedules.ticks
        self.heartbeat = schedules.heartbeat
        self.workers = schedules.workers
        self.put = records.put
        self.fetch = records.fetch
        self.fetch_all = records.fetch_all
        self.remove = records.remove
        self.append = records.append
        self.read = records.read
        self.trim = records.trim
        self.checkpoint = histories.checkpoint
        self.history = histories.history
        self.histories = histories.histories
        self.deliver = histories.deliver
        self.ended_jobs = histories.ended_jobs
        self.forget_ended = histories.forget_ended

    def shards(self) -> Sequence[Store]:
        return ()
