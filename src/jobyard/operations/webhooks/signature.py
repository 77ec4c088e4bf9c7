"""Signatures of webhooks, as the Standard Webhooks specification describes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

PREFIX: Final = "whsec_"
MIN_BYTES, MAX_BYTES = 16, 64


class BadSecret(ValueError):
    """The text is not a signing secret."""


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The key in a secret: `whsec_` and base64. Raises BadSecret.

    >>> key_of("whsec_" + base64.b64encode(b"k" * 24).decode()) == b"k" * 24
    True
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise BadSecret(f"Must be {PREFIX} followed by {MIN_BYTES} to {MAX_BYTES} bytes in base64.")
    return key


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
