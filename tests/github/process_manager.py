"""A process that launches one runner on this machine and is killed then: `python -m tests.github.process_manager`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.github.process_machine import request

from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.github.process import launcher, start
from jobyard.github.process.folder import RunnerFolder


def hang(*_: object) -> Any:
    asyncio.run(asyncio.sleep(1000))


async def main(source: str, work: str, when: str) -> None:
    made = launcher.ProcessLauncher("here", ProcessCluster(runner_folder=source, work_folder=work), instance="blue")
    if when == "before":
        RunnerFolder.fill = hang  # type: ignore[assignment, method-assign]
    if when == "between":
        start.identify = hang  # type: ignore[attr-defined, assignment]
    await made.start(lambda _: None)
    launched = await made.launch(request("r1"))
    if when == "removing":
        await made.remove(launched)
    print("launched", flush=True)
    await asyncio.sleep(1000)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
