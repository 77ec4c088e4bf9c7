"""Settings of queues: what the code or the configuration declares, and what an operator changed.

A document per queue holds both. The store gets the declaration with the operator's changes on top, so that a process
that starts with an older declaration does not undo them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from jobyard.domain.job import QueueSettings
from jobyard.domain.job_options import queue_settings
from jobyard.domain.options import check_name
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.record_store import Record
from jobyard.ports.store import Store

COLLECTION = "jobyard.queue_settings"
PAGE = 1000
DEFAULT = QueueSettings()
_replace = msgspec.structs.replace


class StoredSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    declared: QueueSettings | None = None  # None: not declared anywhere
    changed: dict[str, Any] = {}  # by an operator, by field

    @property
    def in_effect(self) -> QueueSettings:
        return _replace(self.declared or DEFAULT, **self.changed)

    @property
    def origin(self) -> Literal["default", "declared", "operator"]:
        return "operator" if self.changed else "default" if self.declared is None else "declared"

    def changed_by(self, changes: Mapping[str, Any]) -> StoredSettings:
        """Changed by an operator; a setting that is as declared is not a change."""
        declared = self.declared or DEFAULT
        chosen = {
            name: value for name, value in {**self.changed, **changes}.items() if value != getattr(declared, name)
        }
        return _replace(self, changed=chosen)


class _Version(NamedTuple):
    number: int
    settings: StoredSettings


def _decode(data: bytes) -> StoredSettings:
    """A document; one of an earlier version has one age for all finished jobs, where 0 was the default."""
    document = msgspec.json.decode(data)
    for part, is_default in ((document.get("declared"), True), (document.get("changed"), False)):
        if part and "keep_seconds" in part:
            age = part.pop("keep_seconds")
            if age or not is_default:
                part["keep_completed_seconds"] = part["keep_failed_seconds"] = age
    return msgspec.convert(document, StoredSettings)


async def declare(store: Store, declared: Mapping[str, QueueSettings]) -> None:
    """Declare the settings of queues; those that an operator changed stay changed."""
    if not declared:
        return
    known = await _all(store)
    written: dict[str, _Version] = {}
    for queue, settings in declared.items():
        as_declared = partial(_replace, declared=settings)
        written[queue] = await _write(store, queue, known.get(queue), as_declared)
    await _apply(store, written)


async def change(store: Store, queue: str, given: Mapping[str, Any]) -> None:
    """Change settings of a queue, or create it, as an operator: declarations no longer replace what changed."""
    settings = queue_settings(given)
    changes = {name: getattr(settings, name) for name in given}
    record = await store.fetch(COLLECTION, check_name("queue", queue))
    before = None
    if record is None:  # settings of a queue without a document were declared before documents were written
        before = next((info.settings for info in await store.queues() if info.name == queue), None)
    own = StoredSettings(None if before == DEFAULT else before)
    written = await _write(store, queue, record, lambda old: old.changed_by(changes), own)
    await _apply(store, {queue: written})


async def reset(store: Store, queue: str) -> None:
    """Undo the changes of operators: the declared settings apply again, or the defaults."""
    record = await store.fetch(COLLECTION, queue)
    if record is not None:
        await _apply(store, {queue: await _write(store, queue, record, lambda old: _replace(old, changed={}))})


async def remove(store: Store, queue: str) -> bool:
    """Remove an empty queue with what is known of its settings; whether it existed. Raises NotPossible."""
    is_removed = await store.remove_queue(queue)
    return await store.remove(COLLECTION, queue) or is_removed


async def with_origins(store: Store, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """The queues with the origin of their settings."""
    known = await _all(store)
    found: list[QueueInfo] = []
    for info in queues:
        record = known.get(info.name)
        own = None if info.settings == DEFAULT else info.settings
        stored = StoredSettings(own) if record is None else _decode(record.data)
        found.append(_replace(info, settings_origin=stored.origin, declared_settings=stored.declared))
    return found


async def _all(store: Store) -> dict[str, Record]:
    found = page = await store.fetch_all(COLLECTION, PAGE)
    while len(page) == PAGE:
        page = await store.fetch_all(COLLECTION, PAGE, page[-1].key)
        found += page
    return {record.key: record for record in found}


async def _write(
    store: Store,
    queue: str,
    record: Record | None,
    edit: Callable[[StoredSettings], StoredSettings],
    missing: StoredSettings = StoredSettings(),  # noqa: B008  # frozen
) -> _Version:
    while True:
        old = missing if record is None else _decode(record.data)
        new = edit(old)
        if record is not None and new == old:
            return _Version(record.version, new)
        expect = 0 if record is None else record.version
        version = await store.put(COLLECTION, queue, msgspec.json.encode(new), expect=expect)
        if version is not None:
            return _Version(version, new)
        record = await store.fetch(COLLECTION, queue)


async def _apply(store: Store, written: Mapping[str, _Version]) -> None:
    """Bring the documents into effect. A later one may have been applied before: then it is applied again."""
    while written:
        for queue, version in written.items():
            await store.configure(queue, version.settings.in_effect)
        present = await _all(store)
        written = {
            queue: _Version(present[queue].version, _decode(present[queue].data))
            for queue, version in written.items()
            if queue in present and present[queue].version != version.number
        }
