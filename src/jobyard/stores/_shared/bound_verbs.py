"""Binding of the schedule and record verbs of a store to the parts that implement them."""

from __future__ import annotations

from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import ScheduleStore


class ScheduleAndRecordVerbs:
    """Bound once, when the store is made: calling a verb of the store calls the part directly."""

    def __init__(self, schedules: ScheduleStore, records: RecordStore) -> None:
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
