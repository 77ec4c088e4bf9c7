"""Passes requests through the configured faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.errors import ApiError, ConnectionLostError
from jobyard.demo.fake_kubernetes.faults import ApiFault

Result = TypeVar("Result")


async def perform(faults: Sequence[ApiFault], act: Callable[[], Result], rng: random.Random) -> Result:
    """Run a request: faults that precede it, the request itself, faults that follow its commit."""
    for fault in faults:
        match fault.kind:
            case "slow":
                await asyncio.sleep(rng.uniform(0, fault.seconds / 2))
            case "hang_before":
                await asyncio.Event().wait()
            case "lost_before":
                raise ConnectionLostError
            case "throttle":
                raise errors.too_many_requests(max(1, round(fault.seconds)))
            case "fail_before":
                raise _failure(fault.status_code)
    result = act()
    for fault in faults:
        match fault.kind:
            case "slow":
                await asyncio.sleep(rng.uniform(0, fault.seconds / 2))
            case "hang_after":
                await asyncio.Event().wait()
            case "lost_after":
                raise ConnectionLostError
            case "fail_after":
                raise _failure(fault.status_code)
    return result


def _failure(code: int) -> ApiError:
    match code:
        case 503:
            return errors.service_unavailable()
        case 504:
            return errors.timed_out("Timeout: request did not complete within the allotted timeout")
    return errors.internal_error("etcdserver: request timed out")
