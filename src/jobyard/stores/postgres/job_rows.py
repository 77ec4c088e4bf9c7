"""A job as people see it, from its rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, Step
from jobyard.stores._shared.job_rows import JobExtras, job_from_row
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

HAS_EXTRAS = 8
EVERYTHING = ["error", "log", "progress", "step"]
# A list shows neither log lines nor steps.
IN_A_LIST = ["error", "progress"]


NO_EXTRAS = JobExtras()


def add(extras: JobExtras, what: str, at: Instant, finished_at: Instant | None, data: bytes, *, whole: bool) -> None:
    replace = msgspec.structs.replace
    if what == "error":
        error = replace(msgspec.json.decode(data, type=AttemptError), at=at)
        extras.errors.append(error if whole else replace(error, traceback=None))
    elif what == "progress":
        extras.progress = replace(msgspec.json.decode(data, type=Progress), at=at)
    elif what == "log":
        extras.log.append(replace(msgspec.json.decode(data, type=LogLine), at=at))
    elif what == "step":
        step = msgspec.json.decode(data, type=Step)
        extras.steps.append(replace(step, started_at=at, finished_at=finished_at))


async def see(
    connection: Connection, statements: Statements, now: Instant | None, ids: Sequence[str], *, whole: bool = True
) -> dict[str, Job]:
    """Those of the jobs that exist."""
    rows = await connection.fetch(statements["see_job"], now, list(ids))
    extras: dict[int, JobExtras] = {row[0]: JobExtras() for row in rows if row[-1] & HAS_EXTRAS}
    if extras:
        kinds = EVERYTHING if whole else IN_A_LIST
        for sequence, *item in await connection.fetch(statements["list_extras"], list(extras), kinds):
            add(extras[sequence], *item, whole=whole)
    return {row[1]: job_from_row(row, extras.get(row[0], NO_EXTRAS)) for row in rows}
