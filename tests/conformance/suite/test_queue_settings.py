"""Settings of queues: declared by processes, changed by an operator, reset."""

from __future__ import annotations

import asyncio

import msgspec

from jobyard.domain.job import QueueSettings
from jobyard.operations import queue_settings
from jobyard.operations.queue_settings import change, declare, reset, with_origins
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.store import Store


async def queue(store: Store, name: str = "mail") -> QueueInfo:
    [found] = [info for info in await with_origins(store, await store.queues()) if info.name == name]
    return found


async def test_a_change_survives_processes_with_other_declarations(store: Store) -> None:
    await declare(store, {"mail": QueueSettings(max_running=8, keep_failed=7), "other": QueueSettings()})
    assert (await queue(store)).settings_origin == "declared"
    await change(store, "mail", {"max_running": 5})
    older = QueueSettings(max_running=10, keep_failed=9)
    await declare(store, {"mail": older})
    found = await queue(store)
    assert found.settings == QueueSettings(max_running=5, keep_failed=9), "only the changed setting stays"
    assert (found.settings_origin, found.declared_settings) == ("operator", older)
    await reset(store, "mail")
    assert (await queue(store)).settings == older
    assert (await queue(store)).settings_origin == "declared"
    await change(store, "mail", {"max_running": None})
    assert (await queue(store)).settings.max_running is None
    await change(store, "mail", {"max_running": 10})
    assert (await queue(store)).settings_origin == "declared", "it was changed back"


async def test_a_queue_that_nothing_declares(store: Store) -> None:
    await change(store, "mail", {"max_waiting": 3})
    assert ((await queue(store)).settings_origin, (await queue(store)).declared_settings) == ("operator", None)
    await declare(store, {"mail": QueueSettings(max_running=2)})
    assert (await queue(store)).settings == QueueSettings(max_running=2, max_waiting=3)
    await change(store, "new", {})
    assert (await queue(store, "new")).settings_origin == "default"
    await reset(store, "unknown")
    assert [info.name for info in await store.queues()] == ["mail", "new"]


async def test_settings_from_before_they_had_an_origin(store: Store) -> None:
    await store.configure("mail", QueueSettings(max_running=8, keep_failed=7))
    assert (await queue(store)).settings_origin == "declared"
    await change(store, "mail", {"max_running": 5})
    assert (await queue(store)).settings == QueueSettings(max_running=5, keep_failed=7)
    await reset(store, "mail")
    assert (await queue(store)).settings == QueueSettings(max_running=8, keep_failed=7)


async def test_concurrent_changes_and_declarations_agree(store: Store) -> None:
    await declare(store, {"mail": QueueSettings(max_running=1)})
    await asyncio.gather(
        change(store, "mail", {"max_per_group": 2}),
        declare(store, {"mail": QueueSettings(max_running=3)}),
        change(store, "mail", {"max_waiting": 4}),
        declare(store, {"mail": QueueSettings(max_running=3), "other": QueueSettings(max_running=9)}),
    )
    found = await queue(store)
    assert found.settings == QueueSettings(max_running=3, max_per_group=2, max_waiting=4)


async def test_a_writer_that_was_overtaken_applies_the_newest_settings(store: Store) -> None:
    written = await queue_settings._write(store, "mail", None, lambda old: old.changed_by({"max_running": 1}))
    await change(store, "mail", {"max_running": 2})
    await queue_settings._apply(store, {"mail": written})
    assert (await queue(store)).settings.max_running == 2


async def test_documents_of_the_version_with_one_age(store: Store) -> None:
    """An age of 0 was the default of declarations, and is on purpose when an operator chose it."""
    old = {"max_running": 8, "keep_completed": 100, "keep_failed": 7, "keep_seconds": 0.0}
    documents = {
        "mail": {"declared": old},
        "slow": {"declared": old | {"keep_seconds": 60.0}},
        "fast": {"declared": old, "changed": {"keep_seconds": 0.0}},
    }
    for name, document in documents.items():
        await store.put(queue_settings.COLLECTION, name, msgspec.json.encode(document))
        await reset(store, name) if name == "mail" else await change(store, name, {"max_running": 5})
    ages = {name: (await queue(store, name)).settings for name in ("slow", "fast")}
    assert (ages["slow"].keep_completed_seconds, ages["slow"].keep_failed_seconds) == (60, 60)
    assert (ages["fast"].keep_completed_seconds, ages["fast"].keep_failed_seconds) == (0, 0)
    await change(store, "mail", {"max_running": 5})
    assert (await queue(store)).settings == QueueSettings(max_running=5, keep_failed=7)
