"""Authentication of REST calls: App tokens, installation tokens, personal access tokens."""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.demo.fake_github.entities import Owner, Token
from jobyard.demo.fake_github.errors import ApiError, not_found
from jobyard.demo.fake_github.keys import read_jwt
from jobyard.demo.fake_github.model import FakeGitHub

# An App may not ask for a token that is valid for longer than ten minutes.
LONGEST_JWT = 600.0
CLOCK_DRIFT = 60.0


@dataclass(frozen=True)
class AppPrincipal:
    """The App itself, by a signed token."""

    token: Token


Principal = AppPrincipal | Token


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a call needs: the App itself, or a permission of an App and a scope of a personal token."""

    app: bool = False
    permission: str | None = None
    level: str = "read"
    scope: str | None = None


APP = Access(app=True)
ANY = Access()


class Authentication:
    def __init__(self, github: FakeGitHub) -> None:
        self._github = github
        # The calls of the App are counted here.
        self._app_token = Token(value="")

    def authenticate(self, authorization: str | None) -> Principal:
        if not authorization:
            raise ApiError(401, "Requires authentication")
        kind, _, value = authorization.partition(" ")
        value = value.strip()
        if kind.lower() not in ("bearer", "token"):
            raise ApiError(401, "Bad credentials")
        if value.startswith("eyJ"):
            self._check_jwt(value)
            return AppPrincipal(self._app_token)
        token = self._github.accounts.tokens.get(value)
        if token is None or (token.expires_at is not None and token.expires_at <= self._github.core.clock()):
            raise ApiError(401, "Bad credentials")
        return token

    def authorize(self, principal: Principal, access: Access, owner: Owner | None) -> None:
        """Refuse a call that the principal may not make on this owner; an App does not see other accounts."""
        if access.app:
            if not isinstance(principal, AppPrincipal):
                raise ApiError(401, "A JSON web token could not be decoded")
            return
        if isinstance(principal, AppPrincipal):
            raise ApiError(403, "Resource not accessible by integration")
        if principal.installation is not None:
            if owner is not None and principal.installation.owner is not owner:
                raise not_found()
            granted = principal.permissions.get(access.permission or "metadata")
            if granted is None or (access.level == "write" and granted == "read"):
                headers = {"X-Accepted-GitHub-Permissions": f"{access.permission}={access.level}"}
                raise ApiError(403, "Resource not accessible by integration", headers=headers)
        elif access.scope is not None and access.scope not in principal.scopes:
            headers = {
                "X-Accepted-OAuth-Scopes": access.scope,
                "X-OAuth-Scopes": ", ".join(sorted(principal.scopes)),
            }
            raise ApiError(403, "Must have admin rights to this resource.", headers=headers)

    def _check_jwt(self, text: str) -> None:
        app, now = self._github.accounts.app, self._github.core.clock()
        claims = read_jwt(text, app.key)
        if claims is None:
            raise ApiError(401, "A JSON web token could not be decoded")
        issued, expires = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int) or not isinstance(expires, int):
            raise ApiError(401, "Missing 'issued at' claim ('iat') or 'expiration time' claim ('exp')")
        if str(claims.get("iss")) not in (str(app.id), app.client_id):
            raise ApiError(401, "Integration not found")
        if issued > now + CLOCK_DRIFT:
            raise ApiError(401, "'Issued at' claim ('iat') must be an Integer representing a time in the past")
        if expires <= now:
            raise ApiError(
                401,
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which"
                " the assertion expires",
            )
        if expires > now + LONGEST_JWT + CLOCK_DRIFT:
            raise ApiError(401, "'Expiration time' claim ('exp') is too far in the future")
