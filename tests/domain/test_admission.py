"""The admission rule: n at once is one n times, on one level and on two."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.admission import Group, Queue, group_room, is_eligible, next_in_turn, queue_room, share

limits = st.one_of(st.none(), st.integers(0, 5))


@st.composite
def lines(draw: st.DrawFn) -> list[Queue]:
    """Queues with groups in line, every turn different, as the one counter makes them."""
    names = draw(st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=3, unique=True))
    turns = iter(draw(st.permutations(range(1, 40))))
    queues = []
    for name in names:
        queue = Queue(name, draw(limits), draw(limits), draw(st.sampled_from([False, False, True])), turn=next(turns))
        for group_name in draw(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), max_size=5, unique=True)):
            group = Group(group_name, due=draw(st.integers(0, 6)), running=draw(st.integers(0, 3)), turn=next(turns))
            if group_name is not None:
                group.limit, group.paused = draw(limits), draw(st.sampled_from([False, False, True]))
            queue.groups[group_name] = group
            queue.running += group.running
        queues.append(queue)
    return queues


def claim_one_by_one(queues: list[Queue], wanted: int) -> list[tuple[str, str | None]]:
    """The rule as the memory store performs it."""
    queues = deepcopy(queues)
    turn = 1000
    given: list[tuple[str, str | None]] = []
    while len(given) < wanted and (found := next_in_turn(queues)) is not None:
        queue, group = found
        group.due -= 1
        group.running += 1
        queue.running += 1
        turn += 2
        group.turn, queue.turn = turn, turn + 1
        given.append((queue.name, group.name))
    return given


def claim_at_once(queues: list[Queue], wanted: int) -> list[tuple[str, str | None]]:
    """The rule as SQL and Lua perform it: places for queues, then each queue's places for its groups."""
    in_line = sorted(queues, key=lambda queue: queue.turn)
    groups = [sorted(queue.groups.values(), key=lambda group: group.turn) for queue in in_line]
    rooms = [[group_room(queue, group) for group in line] for queue, line in zip(in_line, groups, strict=True)]
    places = share([min(queue_room(queue), sum(room)) for queue, room in zip(in_line, rooms, strict=True)], wanted)
    inner = [iter(share(room, places.count(index))) for index, room in enumerate(rooms)]
    return [(in_line[index].name, groups[index][next(inner[index])].name) for index in places]


@given(lines(), st.integers(0, 30))
def test_many_at_once_equal_single_claims_on_both_levels(queues: list[Queue], wanted: int) -> None:
    assert claim_at_once(queues, wanted) == claim_one_by_one(queues, wanted)


@given(st.lists(st.integers(0, 8), max_size=8), st.integers(0, 40))
def test_share_equals_single_claims_of_one_line(rooms: list[int], wanted: int) -> None:
    line = [[index, room] for index, room in enumerate(rooms)]
    single: list[int] = []
    while len(single) < wanted and (place := next((item for item in line if item[1] > 0), None)):
        place[1] -= 1
        single.append(place[0])
        line.remove(place)
        line.append(place)
    assert share(rooms, wanted) == single


@given(st.lists(st.integers(0, 8), max_size=8), st.integers(0, 20), st.integers(0, 20))
def test_sharing_in_two_parts_changes_nothing(rooms: list[int], first: int, second: int) -> None:
    """The position of a group's last place in the result is its new place in line."""
    given_first = share(rooms, first)
    left = [room - given_first.count(index) for index, room in enumerate(rooms)]
    last = {index: position for position, index in enumerate(given_first)}
    line = sorted(range(len(rooms)), key=lambda index: last.get(index, index - len(rooms)))
    given_second = [line[place] for place in share([left[index] for index in line], second)]
    assert given_first + given_second == share(rooms, first + second)


@given(lines())
def test_the_next_in_turn_is_the_first_eligible_group(queues: list[Queue]) -> None:
    found = next_in_turn(queues)
    eligible = [(queue, group) for queue in queues for group in queue.groups.values() if is_eligible(queue, group)]
    if found is None:
        assert eligible == []
        return
    assert found in eligible
    assert all((found[0].turn, found[1].turn) <= (queue.turn, group.turn) for queue, group in eligible)


@given(st.integers(1, 6), st.integers(1, 30))
def test_a_flood_passes_a_waiting_group_at_most_once(others: int, flood: int) -> None:
    """However much the others have, the group that stands last is served within one round."""
    rooms = [flood] * others + [1]
    assert others in share(rooms, others + 1)
