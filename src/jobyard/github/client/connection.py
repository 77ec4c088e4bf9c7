"""The sessions of a client: one per credential, found by the owner of what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobyard.domain.runners.github_job import RunnerScope
from jobyard.github.client.access import GitHubAccess
from jobyard.github.client.credentials import AppKey, Installation, PersonalToken
from jobyard.github.client.http import Http, deadline
from jobyard.github.client.session import GitHubSession, Names

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

LISTING_DEADLINES = 8  # a list takes many requests; it has the time of this many


class Connection:
    """A personal access token has one rate limit; an App has one of its own, and one per installation."""

    def __init__(self, access: GitHubAccess, http: Http) -> None:
        access.validate()
        self.access = access
        self.http = http
        self.root = GitHubSession(self.http, AppKey(access) if access.is_app else PersonalToken(access.token or ""))
        self.is_user: dict[str, bool] = {}  # owners whose kind is known
        self._installations: dict[str, GitHubSession] = {}

    def session(self, owner: str) -> GitHubSession:
        """The session for what belongs to an organization or a user."""
        if not self.access.is_app:
            return self.root
        key = owner.casefold()
        if key not in self._installations:
            self._installations[key] = GitHubSession(self.http, Installation(self.root, owner))
        return self._installations[key]

    def listing(self, what: str) -> AbstractAsyncContextManager[None]:
        """The deadline of a method that sends several requests."""
        return deadline(self.http.deadline * LISTING_DEADLINES, what)


class Endpoints:
    """Base of the groups of methods that make up the client."""

    _connection: Connection


def repository_names(repo: str, **more: str | int) -> Names:
    """
    >>> repository_names("acme/site", id=7)
    {'owner': 'acme', 'repo': 'site', 'id': 7}
    """
    owner, _, name = repo.partition("/")
    return {"owner": owner, "repo": name, **more}


def scope_path(scope: RunnerScope) -> str:
    return "/orgs/{owner}/actions" if scope.repository is None else "/repos/{owner}/{repo}/actions"


def scope_names(scope: RunnerScope, **more: str | int) -> Names:
    found: dict[str, str | int] = {"owner": scope.owner, **more}
    return found if scope.repository is None else found | {"repo": scope.repository}


def dig(value: Any, *keys: str) -> Any:
    """A value inside objects, any of which may be null or missing.

    >>> dig({"run": {"id": 7}}, "run", "id"), dig({"run": None}, "run", "id")
    (7, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def number(value: Any) -> int | None:
    """A whole number; null and 0, which GitHub uses for "none", are None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value else None


def texts(value: Any) -> tuple[str, ...]:
    """The strings of a list that may contain null, or that may be null itself."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
