"""Reserved tags: callers can neither set nor see them."""

from __future__ import annotations

SUBMITTED_BY = "by:"  # the token that submitted the job
TRACE = "trace:"  # the trace that the job belongs to
_RESERVED = (SUBMITTED_BY, TRACE)


def is_reserved(tag: str) -> bool:
    """
    >>> is_reserved("by:3f2a"), is_reserved("bystander")
    (True, False)
    """
    return tag.startswith(_RESERVED)
