"""Names of the organizations that runners are for: GitHub ignores their case, the groups of a queue do not."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.ports.admin_store import GroupInfo, QueueStore
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Store

RUNNERS_QUEUE = "runners"
SPELLINGS = "jobyard.runners.organizations"
GROUP_PAGE = 1000


class Organizations:
    """The spelling under which each organization is known, whatever spelling it is named by.

    The first spelling stays, also when the organization is renamed from `acme` to `Acme`: tickets that wait, limits and
    runners have it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str] = {}

    async def register(self, name: str) -> str:
        """The known spelling of an organization that has jobs or runners."""
        key = name.casefold()
        if (known := self._known.get(key)) is None:
            known = self._known[key] = await spelling(self._store, name) or await self._create(name)
        return known

    async def _create(self, name: str) -> str:
        groups = [group async for group in groups_of(self._store, name)]
        # A store of an earlier version has groups and no spellings.
        used = [group.name for group in groups if group.waiting or group.delayed or group.running]
        chosen = next(filter(None, used), name)
        if await self._store.put(SPELLINGS, name.casefold(), chosen.encode(), expect=0) is None:
            return await spelling(self._store, name) or chosen  # another process was faster
        for group in groups:
            if group.name is not None and group.name != chosen:
                await self._move(group, chosen)
        return chosen

    async def _move(self, group: GroupInfo, chosen: str) -> None:
        """Move what was set before the organization was known, in another spelling."""
        assert group.name is not None
        if group.limit is not None:
            await self._store.set_limit(RUNNERS_QUEUE, chosen, group.limit)
            await self._store.set_limit(RUNNERS_QUEUE, group.name, None)
        if group.paused:
            await self._store.set_paused(RUNNERS_QUEUE, chosen, True)
            await self._store.set_paused(RUNNERS_QUEUE, group.name, False)


async def known_group(store: Store, queue: str, group: str) -> str:
    """The group that is meant: of the runner queue, the organization in its known spelling."""
    if queue != RUNNERS_QUEUE:
        return group
    if (known := await spelling(store, group)) is not None:
        return known
    names = [each.name async for each in groups_of(store, group) if each.name is not None]
    return group if group in names or not names else names[0]


async def spelling(records: RecordStore, name: str) -> str | None:
    record = await records.fetch(SPELLINGS, name.casefold())
    return None if record is None else record.data.decode()


async def groups_of(store: QueueStore, name: str) -> AsyncIterator[GroupInfo]:
    """The groups of the runner queue that are the organization in any spelling."""
    after: str | None = None
    while page := await store.groups(RUNNERS_QUEUE, GROUP_PAGE, after):
        for group in page:
            if group.name is not None and group.name.casefold() == name.casefold():
                yield group
        if len(page) < GROUP_PAGE:
            return
        after = page[-1].name
