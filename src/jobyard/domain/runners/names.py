"""Names of runners: unique per attempt, valid as a GitHub runner name, a pod name and a host name."""

from __future__ import annotations

import re

PREFIX = "jy"
MAX_NAME = 63
MAX_SLUG = 24


def slug(text: str) -> str:
    """
    >>> slug("Acme_Corp.io"), slug("--"), slug("a" * 40)
    ('acme-corp-io', 'x', 'aaaaaaaaaaaaaaaaaaaaaaaa')
    """
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_SLUG].strip("-")
    return cleaned or "x"


def name_prefix(owner: str, ticket_id: str) -> str:
    """What the names of all runners of one ticket begin with.

    >>> name_prefix("Acme", "0199a1b2-0000-7000-8000-00112233aabb")
    'jy-acme-800000112233aabb-'
    """
    # The last 16 digits of a UUIDv7 are random; the first ones are the time, and equal for tickets of the same moment.
    return f"{PREFIX}-{slug(owner)}-{ticket_id.replace('-', '')[-16:]}-"


def runner_name(owner: str, ticket_id: str, unique: str) -> str:
    """
    >>> runner_name("Acme", "0199a1b2-0000-7000-8000-00112233aabb", "0199a1b2-0000-7000-8000-00445566ccdd")
    'jy-acme-800000112233aabb-5566ccdd'
    >>> len(runner_name("a" * 60, "0199a1b2-0000-7000-8000-00112233aabb", "5566ccdd")) <= MAX_NAME
    True
    """
    return f"{name_prefix(owner, ticket_id)}{unique[-8:]}"


def warm_name(profile: str, unique: str) -> str:
    """
    >>> warm_name("Linux/x64", "0199a1b2-0000-7000-8000-00112233aabb")
    'jy-warm-linux-x64-800000112233aabb'
    """
    return f"{PREFIX}-warm-{slug(profile)}-{unique.replace('-', '')[-16:]}"
