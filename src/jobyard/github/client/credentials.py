"""Tokens: a personal access token, the signature of a GitHub App, and the tokens of its installations."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from gidgethub.apps import get_jwt

from jobyard.domain.instant import instant
from jobyard.github.client.access import GitHubAccess
from jobyard.github.client.session import GitHubSession, Item
from jobyard.github.errors import GitHubRateLimited, GitHubRejected, GitHubUnavailable

JWT_SECONDS = 9 * 60  # GitHub accepts at most 10 minutes
JWT_RENEW_SECONDS = 7 * 60
MARGIN_SECONDS = 300.0  # an installation token is renewed this long before it expires
RETRY_SECONDS = 30.0  # between attempts to renew a token that is still valid


class PersonalToken:
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self, rejected: str | None = None) -> str:
        return self._token


class AppKey:
    """The private key of a GitHub App, which signs short tokens for the App itself."""

    def __init__(self, access: GitHubAccess) -> None:
        self._app_id = str(access.app_id)
        self._key = access.pem
        self._signed = ""
        self._renew_at = 0.0

    async def token(self, rejected: str | None = None) -> str:
        now = _now()
        if now >= self._renew_at or self._signed == rejected:
            self._signed = self._sign()
            self._renew_at = now + JWT_RENEW_SECONDS
        return self._signed

    def _sign(self) -> str:
        try:
            return get_jwt(app_id=self._app_id, private_key=self._key, expiration=JWT_SECONDS)
        except (ValueError, TypeError, jwt.PyJWTError, UnsupportedAlgorithm):
            # The cause is not kept: it may show parts of the key.
            raise GitHubRejected(
                "Cannot sign requests to GitHub: github_private_key is not an RSA private key in PEM format. "
                "Generate one in the settings of the App.",
                401,
            ) from None


class Installation:
    """The App in one account. Its tokens are valid for an hour, and are renewed before, once for all callers."""

    def __init__(self, app: GitHubSession, owner: str) -> None:
        self.owner = owner
        self.is_user = False
        self.permissions: dict[str, Any] = {}
        self._app = app
        self._id: int | None = None
        self._token = ""
        self._renew_at = self._expires_at = 0.0  # by the loop's clock
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Installation {self.owner}>"

    async def token(self, rejected: str | None = None) -> str:
        if self._is_fresh(rejected):
            return self._token
        async with self._lock:
            if not self._is_fresh(rejected):
                await self._renew(rejected)
            return self._token

    def _is_fresh(self, rejected: str | None) -> bool:
        return self._token != rejected and _now() < self._renew_at

    async def _renew(self, rejected: str | None) -> None:
        now = _now()
        is_valid = now < self._expires_at and self._token != rejected
        if is_valid:
            self._renew_at = now + RETRY_SECONDS  # others use the valid token meanwhile
        try:
            self._keep(await self._create())
        except (GitHubUnavailable, GitHubRateLimited):
            if not is_valid:
                raise

    async def _create(self) -> Item:
        for _ in range(2):
            installation = self._id or await self._find()
            try:
                return await self._app.send_item("POST", "/app/installations/{id}/access_tokens", {"id": installation})
            except GitHubRejected as error:
                if error.status != 404:
                    raise
            self._id = None  # the App was removed, and perhaps installed again with another id
        raise self._not_installed()

    async def _find(self) -> int:
        for path in ("/orgs/{owner}/installation", "/users/{owner}/installation"):
            try:
                found = await self._app.get_item(path, {"owner": self.owner})
            except GitHubRejected as error:
                if error.status != 404:
                    raise
                continue
            self._id = _integer(found.get("id"))
            self.is_user = found.get("target_type") == "User"
            return self._id
        raise self._not_installed()

    def _not_installed(self) -> GitHubRejected:
        # Not 404, which would say of a job or a runner that it does not exist.
        return GitHubRejected(
            f"Cannot use {self.owner}: the GitHub App is not installed there. Install it in the settings of the App.",
            403,
        )

    def _keep(self, answer: Item) -> None:
        token, expires = answer.get("token"), answer.get("expires_at")
        if not isinstance(token, str) or not token:
            raise GitHubUnavailable(f"Cannot use {self.owner}: GitHub's response contains no token.")
        seconds = 3600.0
        if isinstance(expires, str):
            with contextlib.suppress(ValueError):
                seconds = instant(expires) / 1000 - self._app.http.now()
        now = _now()
        self._token = token
        self._expires_at = now + seconds
        self._renew_at = now + max(seconds - MARGIN_SECONDS, seconds / 2, 1.0)
        granted = answer.get("permissions")
        self.permissions = granted if isinstance(granted, dict) else {}


def _now() -> float:
    """By the clock of the event loop, which tests may turn."""
    return asyncio.get_running_loop().time()


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise GitHubUnavailable("GitHub's response contains no installation id.")
