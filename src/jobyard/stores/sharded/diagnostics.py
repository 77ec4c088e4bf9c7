"""Findings, migrations and audit of all stores, each labelled with the URL of its store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from jobyard.errors import StoreError
from jobyard.ports.store import Finding, Level, Migration, Store
from jobyard.stores.sharded.shards import Shard, Shards


async def findings(shards: Shards) -> list[Finding]:
    found = await shards.on_all(_diagnose)
    return [finding for of_shard in found for finding in of_shard] + await _left_in_default(shards)


async def _diagnose(shard: Shard) -> list[Finding]:
    try:
        found = await shard.store.diagnose()
    except StoreError as error:
        if not shard.label:
            raise
        queues = ", ".join(shard.queues)
        found = [Finding(Level.FAIL, "store", str(error), f"until it is back, no job of {queues} runs")]
    return [msgspec.structs.replace(finding, check=f"{finding.check} of {shard.store.url}") for finding in found]


async def _left_in_default(shards: Shards) -> list[Finding]:
    """Jobs inserted into the default store before their queue had a store of its own."""
    default = shards.default.store
    return [
        Finding(
            Level.WARN,
            f"queue {info.name}",
            f"{info.waiting + info.delayed + info.running:,} of its jobs are still in {default.url}",
            "run a worker without --queue until they are done",
        )
        for info in await default.queues()
        if info.name in shards.by_queue and info.waiting + info.delayed + info.running
    ]


async def risks(shards: Shards) -> list[Finding]:
    answers = await shards.on_all(lambda shard: shard.store.risks())
    return [
        msgspec.structs.replace(finding, message=f"{shard.store.url}: {finding.message}")
        for shard, found in zip(shards.all, answers, strict=True)
        for finding in found
    ]


async def migrations(shards: Shards) -> list[Migration]:
    answers = await shards.on_all(lambda shard: shard.store.migrations())
    return [
        msgspec.structs.replace(migration, name=f"{migration.name} of {shard.store.url}")
        for shard, of_shard in zip(shards.all, answers, strict=True)
        for migration in of_shard
    ]


async def labelled(shards: Shards, verb: Callable[[Store], Awaitable[list[str]]]) -> list[str]:
    """What the verb reports of each store."""
    answers = await shards.on_all(lambda shard: verb(shard.store))
    return [
        f"{shard.store.url}: {sentence}"
        for shard, sentences in zip(shards.all, answers, strict=True)
        for sentence in sentences
    ]
