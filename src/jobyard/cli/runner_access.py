"""Runners for a command: through a server, or on the store with the configured access to GitHub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from jobyard.app.runners import build_github
from jobyard.cli.session import Session
from jobyard.config.sections import RunnersSection
from jobyard.errors import ConfigurationError, NotFound
from jobyard.github.operations import LocalRunnerOperations
from jobyard.operations.runners import RunnerOperations


@asynccontextmanager
async def runner_operations(session: Session) -> AsyncIterator[RunnerOperations]:
    """Through the server if one is named, else on the store."""
    if session.server is not None:
        async with session.client() as client:
            yield client
        return
    section = session.configuration.runners
    async with session.opened_store() as store:
        yield LocalRunnerOperations(store, section.manager_settings(), lambda: build_github(configured(section)))


async def known_organizations(session: Session) -> list[str]:
    """Organizations with jobs, runners, a limit or use in this month; of a server without runners, none."""
    async with runner_operations(session) as operations:
        try:
            return [org.name for org in (await operations.runner_orgs()).items]
        except NotFound:
            return []


def spelled(org: str, known: Iterable[str]) -> tuple[str, str]:
    """The organization in its known spelling, and what to say if it is not the given one.

    >>> spelled("ACME", ["acme"]), spelled("acme", ["acme"]), spelled("newco", ["acme"])
    (('acme', 'ACME is known as acme.'), ('acme', ''), ('newco', 'No job of newco is known yet.'))
    """
    names = list(known)
    if org in names:
        return org, ""
    for name in names:
        if name.casefold() == org.casefold():
            return name, f"{org} is known as {name}."
    return org, f"No job of {org} is known yet."


def configured(section: RunnersSection) -> RunnersSection:
    """The section, if it has profiles. Raises ConfigurationError."""
    if not section.is_configured:
        raise ConfigurationError(
            "No runner profiles are configured. Set runners.profiles in jobyard.yaml; see docs/howto/github-runners.md."
        )
    return section
