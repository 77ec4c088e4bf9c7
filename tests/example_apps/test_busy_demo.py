"""The application of `make run`."""

from __future__ import annotations

from examples.busy_demo import OWN_LIMITS, TEAMS, feed, yard

from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

QUEUE = "test-execution"


async def test_it_keeps_a_line_of_groups_standing_and_leaves_changed_limits_alone() -> None:
    async with yard.using(MemoryStore(ManualClock())):
        for _ in range(2):
            await feed()
            groups = {group.name: group async for group in yard.groups(QUEUE)}
            assert {name: group.waiting + group.delayed for name, group in groups.items()} == {
                name: team.waiting for name, team in TEAMS.items()
            }
            assert {name: group.limit for name, group in groups.items() if group.limit is not None} == OWN_LIMITS
        for name in OWN_LIMITS:
            await yard.remove_limit(QUEUE, name)
        await feed()
        assert {group.limit async for group in yard.groups(QUEUE)} == {None}
