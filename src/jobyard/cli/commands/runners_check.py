"""`jobyard runners check`: validate the configuration of runners without launching any."""

from __future__ import annotations

import asyncio

import click

from jobyard.cli.findings.report import report
from jobyard.cli.findings.runners import (
    cluster_findings,
    github_findings,
    limit_findings,
    settings_findings,
    within_deadline,
)
from jobyard.cli.session import Session, async_command
from jobyard.errors import JobyardError
from jobyard.github.job_records import Repository
from jobyard.github.operations import known_orgs, recent_repositories
from jobyard.ports.store import Finding, Level


@click.command()
@click.option("--org", "orgs", multiple=True, metavar="NAME", help="Also check this organization; repeatable.")
@async_command
async def check(session: Session, orgs: tuple[str, ...]) -> None:
    """Validate the configuration of runners without launching any.

    Checks the webhook secret, the access to GitHub and to each known organization, the runner groups of the profiles,
    and the clusters with a dry run of the templates. Each line says ok, warn or fail. Exit code 1 if a check failed.

    \b
    Example:
      jobyard runners check
      jobyard runners check --org acme
    """
    session.require_store()
    section = session.configuration.runners
    findings = list(settings_findings(section, session.configuration.server.public_origin))
    names, repositories = set(orgs) | section.org_limits.keys() | section.org_hooks.keys(), list[Repository]()
    try:
        async with session.opened_store() as store:
            names |= await known_orgs(store, section.manager_settings())
            findings += [each async for each in limit_findings(section, store)]
            repositories = await recent_repositories(store)
    except JobyardError as error:
        findings.append(Finding(Level.WARN, "store", f"organizations with events are not known: {error}"))
    if section.is_configured:
        github, clusters = await asyncio.gather(
            within_deadline("github", github_findings(section, sorted(names), repositories)),
            within_deadline("clusters", cluster_findings(section)),
        )
        findings += [*github, *clusters]
    report(session, findings)


commands = (check,)
