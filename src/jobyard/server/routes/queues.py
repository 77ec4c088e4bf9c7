"""Queues: counts, settings, pause, resume, drain."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from jobyard.api.convert import queue_view
from jobyard.api.schemas.queues import DrainAnswer, QueueList, QueueView, SettingsRequest
from jobyard.domain.access import Permission
from jobyard.domain.job import QueueSettings
from jobyard.operations import job_options as options
from jobyard.server.authorization import not_the_whole, note, queue_in_reach
from jobyard.server.problems import HttpError
from jobyard.server.route import Ask, Routes

ROUTES = Routes("queues")
# What is kept of finished jobs is for administrators: others could make evidence go away.
RETENTION = ("keep_completed", "keep_failed", "keep_seconds")


@ROUTES.add("GET", "/v1/queues", Permission.WATCH, "All queues with their counts", answer=QueueList)
async def list_queues(ask: Ask) -> QueueList:
    own, workers = ask.principal.queues, await ask.door.store.workers()
    infos = await ask.door.store.queues()
    return QueueList(tuple(queue_view(info, workers) for info in infos if not own or info.name in own))


@ROUTES.add("GET", "/v1/queues/{queue}", Permission.WATCH, "One queue", answer=QueueView)
async def get_queue(ask: Ask) -> QueueView:
    return queue_view(await queue_in_reach(ask), await ask.door.store.workers())


@ROUTES.add(
    "PATCH",
    "/v1/queues/{queue}",
    Permission.OPERATE,
    "Create a queue, or change what is given of its limits; what is kept of finished jobs is for administrators",
    body=SettingsRequest,
    answer=QueueView,
)
async def change_queue(ask: Ask) -> QueueView:
    name = options.name("queue", ask.path["queue"])
    try:
        present = (await queue_in_reach(ask, whole=True)).settings
    except HttpError as error:
        if error.status != 404 or (ask.principal.queues and name not in ask.principal.queues):
            raise
        if ask.principal.groups:
            raise not_the_whole() from None
        present = QueueSettings()
    settings = merged(ask.body, present)
    if not ask.principal.may(Permission.ADMINISTER) and retention(settings) != retention(present):
        raise HttpError(403, "not_allowed", f"The role {ask.principal.role} may not change what a queue keeps.")
    await ask.door.operate.configure(name, settings)
    await note(ask, "queue.configure", name, **msgspec.to_builtins(settings))
    return queue_view(await queue_in_reach(ask))


def merged(request: SettingsRequest, present: QueueSettings) -> QueueSettings:
    """What is given, and the rest as it is: a new limit must not lift the others."""
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    return msgspec.structs.replace(present, **{name: value for name, value in given.items() if value is not UNSET})


def retention(settings: QueueSettings) -> tuple[float, ...]:
    return tuple(getattr(settings, name) for name in RETENTION)


async def pause(ask: Ask, *, paused: bool) -> QueueView:
    name = (await queue_in_reach(ask, whole=True)).name
    await ask.door.operate.pause(name, paused=paused)
    await note(ask, "queue.pause" if paused else "queue.resume", name)
    return queue_view(await queue_in_reach(ask))


@ROUTES.add("POST", "/v1/queues/{queue}/pause", Permission.OPERATE, "Start no more jobs of the queue", answer=QueueView)
async def pause_queue(ask: Ask) -> QueueView:
    return await pause(ask, paused=True)


@ROUTES.add("POST", "/v1/queues/{queue}/resume", Permission.OPERATE, "Start jobs of the queue again", answer=QueueView)
async def resume_queue(ask: Ask) -> QueueView:
    return await pause(ask, paused=False)


@ROUTES.add(
    "POST",
    "/v1/queues/{queue}/drain",
    Permission.OPERATE,
    "Delete all waiting jobs of the queue; running ones go on",
    answer=DrainAnswer,
)
async def drain_queue(ask: Ask) -> DrainAnswer:
    name = (await queue_in_reach(ask, whole=True)).name
    removed = await ask.door.operate.drain(name)
    await note(ask, "queue.drain", name, removed=removed)
    return DrainAnswer(removed)
