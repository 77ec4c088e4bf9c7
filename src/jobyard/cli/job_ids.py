"""Job ids by unique prefix: the first characters of an id are the time at which it was made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from jobyard.domain.instant import Instant
from jobyard.errors import BadInput, JobNotFound
from jobyard.operations.protocol import Operations
from jobyard.ports.admin_store import Filter

# Shorter ones stand for more than a minute, and so for many jobs.
LEAST = 8
WHOLE = 36
TOO_SHORT = re.compile(r"[0-9a-f]{1,7}")
PREFIX = re.compile(r"[0-9a-f]{8}(-[0-9a-f-]{0,27})?")
TIME_DIGITS = 12  # of a UUIDv7: milliseconds since 1970
# The clock of the program that made the id and that of the store may differ by this much.
CLOCKS_MS = 300_000
# More jobs of the same minutes are not searched: the answer would take long.
MAX_SEARCHED = 20_000


async def whole_id(operations: Operations, text: str) -> str:
    """The id that the text is, or that it begins. Raises JobNotFound, or BadInput if several jobs match."""
    is_short = TOO_SHORT.fullmatch(text.lower())
    if len(text) >= WHOLE or not (is_short or PREFIX.fullmatch(text.lower())):
        return text
    with suppress(JobNotFound):  # an id of another form, which the program that enqueued the job chose
        return (await operations.job(text)).id
    if is_short:
        raise BadInput(
            f"No job has the id {text}. To find one by the beginning of its id, pass at least {LEAST} characters."
        )
    prefix = text.lower()
    first, last = times_of(prefix)
    found: set[str] = set()
    searched = 0
    async for job in operations.walk(Filter(created_after=first - CLOCKS_MS, created_before=last + CLOCKS_MS)):
        searched += 1
        if job.id.startswith(prefix):
            found.add(job.id)
        if len(found) > 1:
            raise BadInput(f"Cannot tell which job {text} is: more than one id begins so. Pass more of it.")
        if searched >= MAX_SEARCHED:
            raise BadInput(f"Cannot search for {text}: too many jobs were created at that time. Pass the whole id.")
    if not found:
        raise JobNotFound.of(text)
    return found.pop()


async def whole_ids(operations: Operations, texts: Sequence[str]) -> tuple[str, ...]:
    """As `whole_id`, for several. A prefix that no job has is returned as it is, to be reported with the others."""
    found: list[str] = []
    for text in texts:
        try:
            found.append(await whole_id(operations, text))
        except JobNotFound:
            found.append(text)
    return tuple(dict.fromkeys(found))


def times_of(prefix: str) -> tuple[Instant, Instant]:
    """The first instant at which an id with this prefix can have been made, and the one after the last.

    >>> times_of("0199a6f3-e4c1-7")
    (1759442625729, 1759442625730)
    >>> times_of("0199a6f3")
    (1759442567168, 1759442632704)
    """
    digits = prefix.replace("-", "")[:TIME_DIGITS]
    step = 16 ** (TIME_DIGITS - len(digits))
    first = int(digits, 16) * step
    return first, first + step
