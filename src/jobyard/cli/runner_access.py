"""Runners for a command: through a server, or on the store with the configured access to GitHub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobyard.app.runners import build_github
from jobyard.cli.session import Session
from jobyard.config.sections import RunnersSection
from jobyard.errors import ConfigurationError
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


def configured(section: RunnersSection) -> RunnersSection:
    """The section, if it has profiles. Raises ConfigurationError."""
    if not section.is_configured:
        raise ConfigurationError(
            "No runner profiles are configured. Set runners.profiles in jobyard.yaml; see docs/howto/github-runners.md."
        )
    return section
