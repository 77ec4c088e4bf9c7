"""Jobs as `get` and `find` return them, from their rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Parent, Progress, Step
from jobyard.stores._shared.job_rows import JobExtras, job_from_row
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

# Bits of the flags.
HAS_EXTRAS, HAS_PARENT, IS_WORKFLOW = 8, 16, 32
IS_SPECIAL = HAS_PARENT | IS_WORKFLOW
ALL_EXTRAS = ["error", "log", "progress", "step"]
# Lists show neither log lines nor steps.
LIST_EXTRAS = ["error", "progress"]
NO_EXTRAS = JobExtras()


async def load_jobs(
    connection: Connection, statements: Statements, now: Instant | None, ids: Sequence[str], *, whole: bool = True
) -> dict[str, Job]:
    """Those of the jobs that exist, by id."""
    rows = await connection.fetch(statements["load_jobs"], now, list(ids))
    extras = {row[0]: _extras(row[-2], row[-1], whole=whole) for row in rows if row[-1] & (HAS_EXTRAS | IS_SPECIAL)}
    with_rows = [row[0] for row in rows if row[-1] & HAS_EXTRAS]
    if with_rows:
        kinds = ALL_EXTRAS if whole else LIST_EXTRAS
        for sequence, *item in await connection.fetch(statements["list_extras"], with_rows, kinds):
            _add(extras[sequence], *item, whole=whole)
    return {row[1]: job_from_row(row, extras.get(row[0], NO_EXTRAS)) for row in rows}


def _extras(parent: str | None, flags: int, *, whole: bool) -> JobExtras:
    parent_id = msgspec.json.decode(parent, type=Parent).job_id if whole and parent is not None else None
    return JobExtras(parent_id=parent_id, is_workflow=bool(flags & IS_WORKFLOW))


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
