"""Findings about the configuration of runners: GitHub, runner groups, clusters, webhook; nothing is launched."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from jobyard.app.runners import build_github, build_launchers, require_runners
from jobyard.config.sections import RunnersSection
from jobyard.domain.text import counted
from jobyard.errors import ConfigurationError, JobyardError
from jobyard.github.api import GitHubApi
from jobyard.github.job_records import Repository
from jobyard.github.launcher import Launcher
from jobyard.github.runner_groups import RunnerGroups
from jobyard.operations.organizations import spelling
from jobyard.ports.clock import SystemClock
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Finding, Level

SHORT_SECRET = 16
# Of each organization; more would only repeat what these show.
MAX_REPOSITORIES = 20
# A side that hangs must not keep the findings of the other from the reader.
CHECK_SECONDS = 20.0


def settings_findings(section: RunnersSection, public_origin: str | None) -> Iterator[Finding]:
    """What the configuration alone shows."""
    if not section.is_configured:
        yield Finding(Level.FAIL, "profiles", "none are configured", "set runners.profiles in jobyard.yaml")
    else:
        names = ", ".join(f"{profile.name} ({', '.join(profile.labels)})" for profile in section.profiles)
        yield Finding(Level.OK, "profiles", names)
    if not section.webhook_secrets:
        advice = "set runners.webhook_secrets to the secret of the webhook"
        yield Finding(Level.FAIL, "webhook", "no secret is configured, so no event can be verified", advice)
    elif any(len(secret) < SHORT_SECRET for secret in section.webhook_secrets):
        advice = "use a random one: openssl rand -hex 32"
        yield Finding(Level.WARN, "webhook", f"a secret is shorter than {SHORT_SECRET} characters", advice)
    else:
        yield Finding(Level.OK, "webhook", f"{counted(len(section.webhook_secrets), 'secret')} configured")
    try:
        require_runners(section)
    except ConfigurationError as error:
        if section.webhook_secrets:
            yield Finding(Level.FAIL, "configuration", str(error))
    if public_origin is None or not public_origin.startswith("https://"):
        message = "the server has no public https address" if public_origin is None else f"{public_origin} is not https"
        advice = "GitHub must reach POST /webhooks/github; set server.public_origin to the address that GitHub uses"
        yield Finding(Level.WARN, "webhook", message, advice)
    else:
        yield Finding(Level.OK, "webhook", f"GitHub sends events to {public_origin}/webhooks/github")


async def limit_findings(section: RunnersSection, store: RecordStore) -> AsyncIterator[Finding]:
    """Limits of organizations that no event has named."""
    for org in section.org_limits:
        known = await spelling(store, org)
        if known is None:
            advice = "check the name; the limit applies once an event names the organization"
            yield Finding(Level.WARN, "org_limits", f"no job of {org} is known yet", advice)
        elif known != org:
            yield Finding(Level.WARN, "org_limits", f"{org} is known as {known}, which has this limit")


async def within_deadline(what: str, findings: AsyncIterator[Finding]) -> list[Finding]:
    """The findings, as far as they come in time."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            async for each in findings:
                found.append(each)  # noqa: PERF401  # what came before the deadline counts
    except TimeoutError:
        found.append(Finding(Level.FAIL, what, f"the check did not end within {CHECK_SECONDS:g} seconds"))
    return found


async def github_findings(
    section: RunnersSection, orgs: Sequence[str], repositories: Sequence[Repository]
) -> AsyncIterator[Finding]:
    """Whether GitHub accepts the credentials, and grants what the manager needs in each organization."""
    try:
        github = build_github(section)
    except ConfigurationError as error:
        yield Finding(Level.FAIL, "github", str(error))
        return
    await github.start()
    try:
        problems = await github.check()
        for problem in problems:
            yield Finding(Level.FAIL, "github", problem)
        if not problems:
            yield Finding(Level.OK, "github", f"{section.github_url} accepts the credentials")
        users = {each.org_name for each in repositories if each.owner_is_user}
        for org in orgs:
            async for finding in _org_findings(section, github, org, repositories, is_user=org in users):
                yield finding
        if not orgs:
            advice = "name some under runners.org_limits, or run it again after the first events"
            yield Finding(Level.WARN, "github", "no organization is known yet, so none was checked", advice)
    finally:
        await github.stop()


async def _org_findings(
    section: RunnersSection, github: GitHubApi, org: str, repositories: Sequence[Repository], *, is_user: bool
) -> AsyncIterator[Finding]:
    problems = await github.check_org(org)
    for problem in problems:
        yield Finding(Level.FAIL, org, problem)
    if problems:
        return
    yield Finding(Level.OK, org, "runners can be registered")
    if is_user:
        return  # a user account has no runner groups
    recent = [each.full_name for each in repositories if each.org_name == org][:MAX_REPOSITORIES]
    groups = RunnerGroups(github, SystemClock())
    for name in dict.fromkeys(profile.runner_group for profile in section.profiles):
        try:
            found = await _group_problems(github, groups, org, name, recent)
        except JobyardError as error:
            found = [str(error)]
        for problem in found:
            yield Finding(Level.FAIL, org, problem)
        if not found:
            users = counted(len(recent), "recent repository", "recent repositories")
            yield Finding(Level.OK, org, f'runner group "{name}" {f"can be used by {users}" if recent else "exists"}')


async def _group_problems(
    github: GitHubApi, groups: RunnerGroups, org: str, name: str, repositories: Sequence[str]
) -> list[str]:
    """Without recent repositories, only whether the group exists."""
    if repositories:
        found = [await groups.find(org, name, repository) for repository in repositories]
        return list(dict.fromkeys(each.problem for each in found if each.id is None))
    known = [group.name for group in await github.runner_groups(org)]
    if any(each.casefold() == name.casefold() for each in known):
        return []
    return [f'{org} has no runner group "{name}". Its groups: {", ".join(known) or "none"}.']


async def cluster_findings(section: RunnersSection) -> AsyncIterator[Finding]:
    """Whether each cluster can be reached, and accepts the templates of its profiles by a dry run."""
    try:
        launchers: Mapping[str, Launcher] = build_launchers(section)
    except JobyardError as error:
        yield Finding(Level.FAIL, "clusters", str(error))
        return
    profiles = defaultdict(list)
    for profile in section.profiles:
        profiles[profile.cluster].append(profile)
    for name, launcher in launchers.items():
        try:
            for finding in await launcher.check(profiles[name]):
                yield finding
        except JobyardError as error:
            yield Finding(Level.FAIL, f"cluster {name}", str(error))
        finally:
            await launcher.stop()
