"""Job ids: UUIDv7, so that ids made later sort later."""

from __future__ import annotations

import uuid_utils


def new_id() -> str:
    return str(uuid_utils.uuid7())
