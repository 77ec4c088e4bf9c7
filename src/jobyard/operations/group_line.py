"""The line of groups of a queue, with the turn of each and what happens to it next."""

from __future__ import annotations

from typing import Literal, TypeAlias

from jobyard.api.schemas.charts import LineGroup, LineView
from jobyard.domain.text import counted
from jobyard.ports.admin_store import GroupInfo, GroupsInLine, QueueInfo

Status: TypeAlias = Literal["next", "ready", "full", "blocked", "paused", "held"]


def line_view(queue: QueueInfo, line: GroupsInLine) -> LineView:
    limit = queue.settings.max_running
    room = 0 if queue.paused else None if limit is None else max(0, limit - queue.running)
    groups: list[LineGroup] = []
    turn = 0
    for place, group in enumerate(line.groups, start=1):
        held = hold_of(group)
        turn += held is None
        status: Status = held or ("held" if room == 0 else "next" if turn == 1 else "ready")
        groups.append(_line_group(group, place, turn if held is None else None, status))
    following = next((group for group in groups if group.turn == 1), None)
    return LineView(
        queue=queue.name,
        paused=queue.paused,
        running=queue.running,
        max_running=limit,
        room=room,
        next_group=None if following is None else following.name,
        sentence=_sentence(queue, room, following),
        groups=tuple(groups),
        left_out=max(0, line.total - len(groups)),
    )


def hold_of(group: GroupInfo) -> Literal["full", "blocked", "paused"] | None:
    """What holds the group back by itself; None: it has room."""
    if group.paused:
        return "paused"
    if group.effective_limit == 0:
        return "blocked"
    return "full" if group.effective_limit is not None and group.running >= group.effective_limit else None


def _line_group(group: GroupInfo, place: int, turn: int | None, status: Status) -> LineGroup:
    has_own = group.limit is not None
    return LineGroup(
        name=group.name,
        place=place,
        turn=turn,
        waiting=group.waiting,
        delayed=group.delayed,
        running=group.running,
        limit=group.limit,
        effective_limit=group.effective_limit,
        limit_origin="own" if has_own else "none" if group.effective_limit is None else "queue",
        paused=group.paused,
        status=status,
        sentence=_what_next(group, turn, status),
    )


def _what_next(group: GroupInfo, turn: int | None, status: Status) -> str:
    match status:
        case "paused":
            return "Paused: it keeps its place. Resume it to start its jobs."
        case "blocked":
            return "Blocked: its limit is 0. Raise or remove the limit to start its jobs."
        case "full":
            return f"Full: {group.running} of {group.effective_limit} run. It keeps its place until one ends."
        case "next":
            return "Gets the next free slot."
        case "held" if turn == 1:
            return "Gets the next slot once the queue has room."
    ahead = (turn or 1) - 1
    return f"Gets a slot after {counted(ahead, 'group')} ahead of it."


def _sentence(queue: QueueInfo, room: int | None, following: LineGroup | None) -> str:
    if queue.paused:
        return "The queue is paused: no job starts until it is resumed."
    if following is None:
        return "Every group in line is full, blocked or paused." if queue.waiting else "No job waits."
    name = "Jobs without a group" if following.name is None else f"Group {following.name}"
    if room == 0:
        return f"The queue is at its limit: {queue.running} of {queue.settings.max_running} run. {name} is next."
    return f"{name} is next."
