"""The instances of all clusters. Those of a cluster that does not answer are counted by their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from jobyard.domain.instant import Instant
from jobyard.domain.runners.runner import Runner
from jobyard.github.launcher import Instance, Launcher
from jobyard.github.records import Collection
from jobyard.github.runner_records import RunnerRecords
from jobyard.ports.clock import Clock
from jobyard.ports.record_store import RecordStore

COMPARED = "jobyard.runners.compared_clusters"

Recorded: TypeAlias = Mapping[str, Sequence[Instance]]  # by cluster


class Clusters:
    def __init__(
        self, records: RecordStore, runners: RunnerRecords, launchers: Mapping[str, Launcher], clock: Clock
    ) -> None:
        self._compared = Collection(records, COMPARED, int)
        self._runners = runners
        self._launchers = launchers
        self._clock = clock

    async def compared(self, name: str) -> None:
        """Note that every instance of the cluster has a record. From then on the records include all of them."""
        if len(self._launchers) > 1 and await self._compared.get(name) is None:
            now: Instant = self._clock.now()
            await self._compared.put(name, now)

    def silent(self) -> list[str]:
        """The names of the clusters that do not answer now."""
        return [name for name, launcher in self._launchers.items() if launcher.instances() is None]

    async def recorded(self) -> Recorded:
        """What the records tell of clusters that do not answer now.

        A cluster that was never compared with this store is left out: it may have instances without a record.
        """
        known = [name for name in self.silent() if await self._compared.get(name) is not None]
        if not known:
            return {}
        runners = [runner for runner in await self._runners.all() if runner.is_launched]
        return {name: [_instance(runner) for runner in runners if runner.cluster == name] for name in known}

    def instances(self, recorded: Recorded) -> list[Instance] | None:
        """The instances of all clusters; None if they cannot be counted.

        `recorded` is read before, so that nothing is awaited between this count and what follows from it.
        """
        found: list[Instance] = []
        for name, launcher in self._launchers.items():
            instances = launcher.instances()
            if instances is None:
                instances = recorded.get(name)
            if instances is None:
                return None
            found += instances
        return found


def _instance(runner: Runner) -> Instance:
    """PENDING, as it is not known whether it runs: it holds a slot and can take no job."""
    return Instance(
        name=runner.name,
        uid=runner.uid,
        org_name=runner.org_name,
        repository=runner.repository,
        profile=runner.profile,
        ticket_id=None if runner.ticket is None else runner.ticket.job_id,
        created_at=runner.created_at,
    )
