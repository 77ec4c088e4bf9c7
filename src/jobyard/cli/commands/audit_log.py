"""`jobyard audit-log`: who changed what, and when."""

from __future__ import annotations

from collections import deque

import click
import msgspec
from rich.markup import escape

from jobyard.cli.option_flags import limit_flag
from jobyard.cli.session import Session, absolute_option, async_command
from jobyard.cli.times import time_value
from jobyard.domain.access import AuditEntry
from jobyard.domain.instant import Instant
from jobyard.operations.audit_log import is_about


@click.command("audit-log")
@click.option("--action", metavar="TEXT", help="Only this action, or all that begin with it: job.cancel, job.")
@click.option("--target", metavar="TEXT", help="Only changes of this job, queue, group, schedule, token or worker.")
@click.option("--by", metavar="NAME", help="Only changes by the token of this name or id.")
@click.option("--since", callback=time_value, metavar="TIME", help="Only changes at this time or later.")
@click.option("--until", callback=time_value, metavar="TIME", help="Only changes before this time.")
@limit_flag(10_000, 50, "entries")
@absolute_option
@async_command
async def audit_log(
    session: Session,
    action: str | None,
    target: str | None,
    by: str | None,
    since: Instant | None,
    until: Instant | None,
    limit: int,
) -> None:
    """Show who changed what, and when, newest first.

    Changes through the API and by commands, and logins; jobs that are submitted and run are not changes. See
    docs/howto/access.md.

    \b
    Example:
      jobyard audit-log --action job.cancel --since 2026-11-16
      jobyard audit-log --target mail --limit 10
    """

    def matches(entry: AuditEntry) -> bool:
        return (
            (action is None or entry.action.startswith(action))
            and (target is None or is_about(entry, target) or target in entry.target.split("/"))
            and (by is None or by in (entry.name, entry.principal))
            and (since is None or entry.at >= since)
            and (until is None or entry.at < until)
        )

    # The log is read from its beginning: the newest entries are the last ones.
    newest: deque[AuditEntry] = deque(maxlen=limit)
    async with session.operations() as operations:
        async for entry in operations.audit_log():
            if matches(entry):
                newest.appendleft(entry)
        now = await operations.now()
    rows = (
        (
            session.moment(entry.at, now),
            escape(entry.name),
            str(entry.role),
            escape(entry.action),
            escape(entry.target) or "-",
            escape(msgspec.json.encode(entry.details).decode()) if entry.details else "",
        )
        for entry in newest
    )
    headings = ("when", "~by", "role", "action", "~target", "~details")
    session.print_table({"entries": list(newest)}, headings, rows, "No change matches.")
