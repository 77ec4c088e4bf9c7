"""One HTTP request of a webhook: to a checked address, without redirects, within a time and a size."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from jobyard.operations.webhooks.address import Target, resolve

TIMEOUT_SECONDS = 15.0  # as the specification recommends
MAX_HEAD_BYTES = 16 << 10
USER_AGENT = "jobyard-webhooks"


class DeliveryFailed(Exception):
    """The receiver did not answer with HTTP."""


async def post(target: Target, headers: dict[str, str], body: bytes, *, allow_private: bool = False) -> int:
    """Send the body and return the status of the response. Raises ForbiddenAddress, DeliveryFailed.

    A redirect is an answer like any other: following it would lead to an address that was not checked.
    """
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            addresses = await resolve(target, allow_private=allow_private)
            return await _post(target, addresses[0], headers, body)
    except TimeoutError:
        raise DeliveryFailed(f"no response within {TIMEOUT_SECONDS:g} s") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError) as error:
        raise DeliveryFailed(str(error) or type(error).__name__) from error


async def _post(target: Target, address: str, headers: dict[str, str], body: bytes) -> int:
    context = ssl.create_default_context() if target.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        address,
        target.port,
        ssl=context,
        server_hostname=target.host if context is not None else None,
        limit=MAX_HEAD_BYTES,
    )
    try:
        lines = [f"POST {target.path} HTTP/1.1", f"host: {target.authority}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["content-type: application/json", f"user-agent: {USER_AGENT}", "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("ascii") + body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n")
        return _status(head)
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            writer.transport.abort()


def _status(line: bytes) -> int:
    """
    >>> _status(b"HTTP/1.1 204 No Content\\r\\n")
    204
    """
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise DeliveryFailed("the receiver does not speak HTTP/1")
    return int(words[1])
