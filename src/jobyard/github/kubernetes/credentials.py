"""Credentials for a Kubernetes cluster: constant, read from files that may change, or from an exec plugin."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from jobyard.errors import ConfigurationError
from jobyard.github.kubernetes.api import KubernetesUnavailable

PLUGIN_SECONDS = 30.0
# A plugin's token is renewed this long before it expires, so that no request is sent with one that expires on its way.
RENEW_BEFORE_SECONDS = 60.0


class Credentials(NamedTuple):
    token: str | None = None
    certificate: bytes | None = None  # PEM
    key: bytes | None = None

    def __repr__(self) -> str:
        return "Credentials(...)"


class CredentialSource(Protocol):
    async def credentials(self, *, refresh: bool = False) -> Credentials:
        """The present credentials; `refresh` after the server has rejected them."""


class Value:
    """Bytes that are given inline or as a file; a file is read again when it has changed."""

    def __init__(self, data: bytes | None = None, path: Path | None = None) -> None:
        self._data = data
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def __bool__(self) -> bool:
        return self._data is not None or self._path is not None

    def read(self, *, refresh: bool = False) -> bytes | None:
        if self._path is None:
            return self._data
        try:
            # Kubernetes replaces mounted files by switching a link, so the inode changes.
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if refresh or seen != self._seen:
                self._data, self._seen = self._path.read_bytes(), seen
        except OSError as error:
            if self._data is None:
                raise ConfigurationError(f"Cannot read {self._path}: {error.strerror}.") from error
        return self._data


class FileCredentials:
    def __init__(self, token: Value, certificate: Value, key: Value) -> None:
        self._token, self._certificate, self._key = token, certificate, key

    async def credentials(self, *, refresh: bool = False) -> Credentials:
        token = self._token.read(refresh=refresh)
        return Credentials(
            token.decode().strip() if token else None,
            self._certificate.read(refresh=refresh),
            self._key.read(refresh=refresh),
        )


class ExecCredentials:
    """Runs the program that a kubeconfig names under `exec`, and keeps what it prints until that expires."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], info: dict[str, Any], hint: str) -> None:
        self._command = list(command)
        self._variables = dict(variables)
        self._info = info
        self._hint = hint
        self._kept: Credentials | None = None
        self._until: float | None = None
        self._lock = asyncio.Lock()

    async def credentials(self, *, refresh: bool = False) -> Credentials:
        asked_for = self._kept
        async with self._lock:
            is_renewed = self._kept is not asked_for  # by a caller that had the lock before
            is_expired = self._until is not None and time.time() >= self._until
            if self._kept is None or is_expired or (refresh and not is_renewed):
                self._kept, self._until = self._parse(await self._run())
            return self._kept

    async def _run(self) -> bytes:
        variables = os.environ | self._variables
        variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(self._info).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f" {self._hint}" if self._hint else ""
            raise ConfigurationError(f"Cannot run {self._command[0]}: {error.strerror}.{hint}") from error
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise self._failed(f"no credentials within {PLUGIN_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise self._failed(f"exit code {process.returncode}: {errors.decode(errors='replace').strip()[-300:]}")
        return output

    def _parse(self, output: bytes) -> tuple[Credentials, float | None]:
        try:
            status = msgspec.json.decode(output)["status"]
            found = Credentials(
                status.get("token"),
                _encoded(status.get("clientCertificateData")),
                _encoded(status.get("clientKeyData")),
            )
            expires = status.get("expirationTimestamp")
            until = datetime.fromisoformat(expires).timestamp() - RENEW_BEFORE_SECONDS if expires else None
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError):
            raise self._failed("it printed no valid ExecCredential") from None
        if found.token is None and found.certificate is None:
            raise self._failed("its ExecCredential has neither a token nor a certificate")
        return found, until

    def _failed(self, why: str) -> KubernetesUnavailable:
        return KubernetesUnavailable(f"The credential plugin {self._command[0]} failed: {why}", was_sent=False)


def _encoded(text: str | None) -> bytes | None:
    return text.encode() if text is not None else None


def decoded(text: str, field: str) -> bytes:
    """The content of a `...-data` field of a kubeconfig."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{field} is not valid base64.") from None
