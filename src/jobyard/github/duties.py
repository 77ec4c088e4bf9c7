"""What only one replica does at a time, such as expensive comparisons with GitHub. There is no leader."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.github.records import Collection
from jobyard.ports.clock import Clock
from jobyard.ports.record_store import RecordStore

DUTIES = "jobyard.runners.duties"
HOLDERS = "jobyard.runners.duty_holders"


class Duty(msgspec.Struct, frozen=True):
    """When a replica last began a duty."""

    holder: str
    began_at: Instant

    def is_recent(self, now: Instant, seconds: float) -> bool:
        """A time in the future is that of a clock which was set back since."""
        return 0 <= now - self.began_at < seconds * 1000


class Holder(msgspec.Struct, frozen=True):
    """The replica that has a duty, until then."""

    name: str
    until: Instant


class Duties:
    def __init__(self, records: RecordStore, clock: Clock, name: str) -> None:
        self._begun = Collection(records, DUTIES, Duty)
        self._holders = Collection(records, HOLDERS, Holder)
        self._clock = clock
        self._name = name
        self._seen: dict[str, Duty] = {}  # as the store last showed them: until one is due, it is not asked again

    async def take_turn(self, duty: str, seconds: float) -> bool:
        """Whether a duty is due that no replica began within these seconds; if so, it counts as begun now."""
        now = self._clock.now()
        if duty in self._seen and self._seen[duty].is_recent(now, seconds):
            return False
        mine = Duty(self._name, now)

        def take(known: Duty | None) -> Duty | None:
            return mine if known is None or not known.is_recent(now, seconds) else None

        found = await self._begun.update(duty, take)
        if found is not None:
            self._seen[duty] = found
        return found == mine

    async def hold(self, duty: str, seconds: float) -> bool:
        """Take or renew a duty for a while; False while another replica has it."""
        now = self._clock.now()
        mine = Holder(self._name, after(now, seconds))

        def take(known: Holder | None) -> Holder | None:
            if known is None or known.until <= now:
                return mine
            is_renewed = known.name == self._name and known.until < after(now, seconds / 2)
            return mine if is_renewed else None

        found = await self._holders.update(duty, take)
        return found is not None and found.name == self._name
