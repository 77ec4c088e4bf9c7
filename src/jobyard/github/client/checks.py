"""Diagnoses of GitHub permissions, with remedies."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from jobyard.github.client.connection import Endpoints, dig, text, texts
from jobyard.github.client.credentials import Installation
from jobyard.github.client.session import PER_PAGE, Item
from jobyard.github.errors import GitHubError, GitHubRejected

OLDEST_ENTERPRISE = (3, 10)  # the first with just-in-time runners
SKEW_SECONDS = 30.0
ORG_RUNNERS, USER_RUNNERS = "organization_self_hosted_runners", "administration"
TITLES = {
    ORG_RUNNERS: "Self-hosted runners",
    USER_RUNNERS: "Administration",
    "actions": "Actions",
}
LEVELS = {"read": 1, "write": 2, "admin": 3}
RUNNER_SCOPES = frozenset({"admin:org", "manage_runners:org"})


class CheckEndpoints(Endpoints):
    async def repositories(self, org: str) -> list[str]:
        """Repositories that are not archived, with the most recently changed ones first."""
        async with self._connection.listing(f"the repositories of {org}"):
            found = await self._repositories(org)
        found = [item for item in found if text(item.get("full_name")) and not item.get("archived")]
        found.sort(key=lambda item: text(item.get("pushed_at")), reverse=True)
        return [item["full_name"] for item in found]

    async def _repositories(self, org: str) -> list[Item]:
        session = self._connection.session(org)
        if self._connection.access.is_app:
            return [item async for item in session.items("/installation/repositories?per_page=100", key="repositories")]
        names: dict[str, str | int] = {"owner": org, "per_page": PER_PAGE}
        try:
            return [item async for item in session.items("/orgs/{owner}/repos{?per_page}", names)]
        except GitHubRejected as error:
            if error.status != 404:
                raise
        return [item async for item in session.items("/users/{owner}/repos{?per_page}", names)]

    async def check(self) -> list[str]:
        root, access = self._connection.root, self._connection.access
        try:
            found = await root.get_item("/app" if access.is_app else "/meta")
        except GitHubRejected as error:
            return [self._rejected(error)]
        except GitHubError as error:
            return [f"Cannot check the access to {self._connection.http.base_url}: {error}"]
        problems = await self._version_problems(found)
        if access.is_app:
            # An App for user accounts only has the other permission for runners.
            needed = USER_RUNNERS if dig(found, "permissions", USER_RUNNERS) == "write" else ORG_RUNNERS
            problems += missing_permissions("the GitHub App", found.get("permissions"), needed)
            if "workflow_job" not in texts(found.get("events")):
                problems.append(
                    'Cannot learn of queued jobs by the App: it does not subscribe to the event "Workflow job". '
                    "Select it in the settings of the App, or add webhooks to the organizations."
                )
        elif root.scopes is not None:
            problems += missing_scopes(root.scopes, needs_hooks=bool(access.org_hooks))
        return problems

    async def check_org(self, org: str) -> list[str]:
        try:
            async with self._connection.listing(f"check {org}"):
                return await self._org_problems(org)
        except GitHubError as error:
            return [f"Cannot check the access to {org}: {error}"]

    async def _org_problems(self, org: str) -> list[str]:
        session = self._connection.session(org)
        if isinstance(session.credential, Installation):
            try:
                await session.credential.token()
            except GitHubRejected as error:
                return [str(error)]
            problems = installation_problems(session.credential)
            if problems or session.credential.is_user:
                return problems
        try:
            await session.get_item("/orgs/{owner}/actions/runners?per_page=1", {"owner": org})
        except GitHubRejected as error:
            return [self._unreadable(org, error)]
        return []

    def _rejected(self, error: GitHubRejected) -> str:
        access = self._connection.access
        if error.status != 401:
            return f"Cannot check the access to GitHub: {error}"
        if not access.is_app:
            return "Cannot use github_token: GitHub rejects it as wrong, revoked or expired. Create a new one."
        ahead = self._connection.http.ahead_seconds
        if abs(ahead) > SKEW_SECONDS:
            side = "behind" if ahead > 0 else "ahead of"
            return (
                f"Cannot authenticate as GitHub App {access.app_id}: the clock of this machine is "
                f"{abs(ahead):.0f} seconds {side} GitHub's. Correct the clock."
            )
        return (
            f"Cannot authenticate as GitHub App {access.app_id}: {error} "
            "Check that github_private_key belongs to github_app_id."
        )

    def _unreadable(self, org: str, error: GitHubRejected) -> str:
        if error.status in {401, 403, 404}:
            what = "App" if self._connection.access.is_app else "token"
            return (
                f"Cannot manage the runners of {org}: {error} "
                f"Check the name, and give the {what} write access to self-hosted runners of the organization."
            )
        return f"Cannot manage the runners of {org}: {error}"

    async def _version_problems(self, found: Item) -> list[str]:
        http = self._connection.http
        version = http.enterprise_version or text(found.get("installed_version"))
        if not version and self._connection.access.is_app and not http.base_url.startswith("https://api."):
            with contextlib.suppress(GitHubError):
                version = text((await self._connection.root.get_item("/meta")).get("installed_version"))
        return old_version(version)


def installation_problems(installation: Installation) -> list[str]:
    needed = USER_RUNNERS if installation.is_user else ORG_RUNNERS
    return missing_permissions(f"the GitHub App in {installation.owner}", installation.permissions, needed)


def missing_permissions(name: str, granted: Any, for_runners: str) -> list[str]:
    """What an App lacks. An organization has to accept permissions that were added after the installation."""
    levels: Mapping[str, Any] = granted if isinstance(granted, dict) else {}
    problems = []
    for permission, level, purpose in (
        (for_runners, "write", "register runners"),
        ("actions", "read", "read the state of jobs"),
    ):
        if LEVELS.get(str(levels.get(permission)), 0) < LEVELS[level]:
            problems.append(
                f'Cannot {purpose}: {name} lacks the permission "{TITLES[permission]}: {level}". '
                "Add it in the settings of the App, and accept it in each organization."
            )
    return problems


def missing_scopes(scopes: frozenset[str], *, needs_hooks: bool) -> list[str]:
    """
    >>> missing_scopes(frozenset({"admin:org", "repo"}), needs_hooks=False)
    []
    """
    problems = []
    if not scopes & RUNNER_SCOPES:
        problems.append('Cannot register runners: github_token lacks the scope "admin:org". Add it to the token.')
    if "repo" not in scopes:
        problems.append(
            'Cannot read jobs of private repositories: github_token lacks the scope "repo". Add it to the token.'
        )
    if needs_hooks and "admin:org_hook" not in scopes:
        problems.append(
            'Cannot read webhook deliveries: github_token lacks the scope "admin:org_hook". '
            "Add it to the token, or remove org_hooks."
        )
    return problems


def old_version(version: str) -> list[str]:
    """
    >>> old_version("3.10.2"), old_version("")
    ([], [])
    >>> old_version("3.9.14")
    ['Cannot use GitHub Enterprise Server 3.9.14: just-in-time runners need 3.10 or newer. Upgrade the server.']
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) >= OLDEST_ENTERPRISE:
        return []
    return [
        f"Cannot use GitHub Enterprise Server {version}: just-in-time runners need 3.10 or newer. Upgrade the server."
    ]
