"""Jobs as `get` and `find` return them, from their rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, Step
from jobyard.stores._shared.job_rows import JobExtras, job_from_row
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

HAS_EXTRAS = 8  # a bit of the flags
ALL_EXTRAS = ["error", "log", "progress", "step"]
# Lists show neither log lines nor steps.
LIST_EXTRAS = ["error", "progress"]
NO_EXTRAS = JobExtras()


async def load_jobs(
    connection: Connection, statements: Statements, now: Instant | None, ids: Sequence[str], *, whole: bool = True
) -> dict[str, Job]:
    """Those of the jobs that exist, by id."""
    rows = await connection.fetch(statements["load_jobs"], now, list(ids))
    extras: dict[int, JobExtras] = {row[0]: JobExtras() for row in rows if row[-1] & HAS_EXTRAS}
    if extras:
        kinds = ALL_EXTRAS if whole else LIST_EXTRAS
        for sequence, *item in await connection.fetch(statements["list_extras"], list(extras), kinds):
            _add(extras[sequence], *item, whole=whole)
    return {row[1]: job_from_row(row, extras.get(row[0], NO_EXTRAS)) for row in rows}


def _add(extras: JobExtras, kind: str, at: Instant, finished_at: Instant | None, data: bytes, *, whole: bool) -> None:
    replace = msgspec.structs.replace
    if kind == "error":
        error = replace(msgspec.json.decode(data, type=AttemptError), at=at)
        extras.errors.append(error if whole else replace(error, traceback=None))
    elif kind == "progress":
        extras.progress = replace(msgspec.json.decode(data, type=Progress), at=at)
    elif kind == "log":
        extras.log.append(replace(msgspec.json.decode(data, type=LogLine), at=at))
    elif kind == "step":
        step = msgspec.json.decode(data, type=Step)
        extras.steps.append(replace(step, started_at=at, finished_at=finished_at))
