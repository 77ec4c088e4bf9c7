"""RSA keys and RS256 tokens of GitHub Apps, with the standard library alone; never for real secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import random
from dataclasses import dataclass
from typing import Any

PUBLIC_EXPONENT = 65537
# DER prefix of a SHA-256 digest in a PKCS #1 v1.5 signature.
DIGEST_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")


@dataclass(frozen=True, kw_only=True)
class RsaKey:
    modulus: int
    private_exponent: int
    primes: tuple[int, int]

    @property
    def size(self) -> int:
        return (self.modulus.bit_length() + 7) // 8

    def private_pem(self) -> str:
        """PKCS #1, the form in which GitHub hands out the private key of an App."""
        p, q = self.primes
        numbers = (
            0,
            self.modulus,
            PUBLIC_EXPONENT,
            self.private_exponent,
            p,
            q,
            self.private_exponent % (p - 1),
            self.private_exponent % (q - 1),
            pow(q, -1, p),
        )
        text = base64.b64encode(_der(0x30, b"".join(_der_integer(number) for number in numbers))).decode()
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        kind = "RSA PRIVATE KEY"
        return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])

    def sign(self, message: bytes) -> bytes:
        number = int.from_bytes(_padded(message, self.size))
        return pow(number, self.private_exponent, self.modulus).to_bytes(self.size)

    def verifies(self, message: bytes, signature: bytes) -> bool:
        if len(signature) != self.size:
            return False
        opened = pow(int.from_bytes(signature), PUBLIC_EXPONENT, self.modulus)
        return opened.to_bytes(self.size) == _padded(message, self.size)


def generate_key(rng: random.Random, bits: int = 2048) -> RsaKey:
    """A key from a seeded generator: reproducible, therefore for the fake only."""
    while True:
        p, q = _prime(rng, bits // 2), _prime(rng, bits // 2)
        order = (p - 1) * (q - 1)
        if p != q and order % PUBLIC_EXPONENT:
            exponent = pow(PUBLIC_EXPONENT, -1, order)
            return RsaKey(modulus=p * q, private_exponent=exponent, primes=(p, q))


def sign_jwt(key: RsaKey, *, issuer: str | int, now: float, lifetime: float = 540.0) -> str:
    """The token with which an App authenticates as itself."""
    claims = {"iat": int(now) - 60, "exp": int(now + lifetime), "iss": issuer}
    signed = f"{_encode_json({'alg': 'RS256', 'typ': 'JWT'})}.{_encode_json(claims)}"
    return f"{signed}.{_encode(key.sign(signed.encode()))}"


def read_jwt(text: str, key: RsaKey | None) -> dict[str, Any] | None:
    """The claims of an RS256 token, or None if it is malformed or the signature is wrong.

    Without a key the signature is not checked.
    """
    try:
        head, body, signature = text.split(".")
        header, claims = json.loads(_decode(head)), json.loads(_decode(body))
        raw = _decode(signature)
    except (ValueError, binascii.Error):
        return None
    if not isinstance(header, dict) or header.get("alg") != "RS256" or not isinstance(claims, dict) or not raw:
        return None
    if key is not None and not key.verifies(f"{head}.{body}".encode(), raw):
        return None
    return claims


def _padded(message: bytes, size: int) -> bytes:
    tail = DIGEST_PREFIX + hashlib.sha256(message).digest()
    return b"\x00\x01" + b"\xff" * (size - len(tail) - 3) + b"\x00" + tail


def _prime(rng: random.Random, bits: int) -> int:
    # The two highest bits are set, so that the product of two primes has the full length.
    while True:
        candidate = rng.getrandbits(bits) | (3 << (bits - 2)) | 1
        if all(candidate % small for small in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)) and _probably_prime(
            candidate, rng
        ):
            return candidate


def _probably_prime(candidate: int, rng: random.Random) -> bool:
    """Miller-Rabin with enough rounds for keys of this size."""
    twos = ((candidate - 1) & -(candidate - 1)).bit_length() - 1
    odd = (candidate - 1) >> twos
    for _ in range(16):
        value = pow(rng.randrange(2, candidate - 1), odd, candidate)
        if value in (1, candidate - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % candidate
            if value == candidate - 1:
                break
        else:
            return False
    return True


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(size)]) + size + content


def _der_integer(number: int) -> bytes:
    return _der(0x02, number.to_bytes(number.bit_length() // 8 + 1))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _encode_json(value: object) -> str:
    return _encode(json.dumps(value).encode())


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
