"""`jobyard migrate`: migrate the schema of a store, or show what would be done."""

from __future__ import annotations

import click

from jobyard.cli.session import Session, async_command
from jobyard.ports.store import Migration, Store


@click.command()
@click.option("--plan", "only_plan", is_flag=True, help="Only list the applied and pending migrations.")
@click.option("--sql", "only_print", is_flag=True, help="Only print the pending migrations, to apply them by hand.")
@async_command
async def migrate(session: Session, only_plan: bool, only_print: bool) -> None:
    """Bring the schema of a store up to date.

    Opening a store does the same. Use this command to see the changes first, or if your workers may not change the
    schema. It is safe to repeat, and to run in several processes at the same time.

    \b
    Example:
      jobyard --store postgresql://jobs@db/shop migrate --plan
      jobyard --store postgresql://jobs@db/shop migrate
      jobyard --store postgresql://jobs@db/shop migrate --sql > schema.sql
    """
    if only_plan and only_print:
        raise click.UsageError("Pass --plan or --sql, not both.")
    store = session.store()
    before = await store.migrations()
    missing = [migration for migration in before if not migration.applied]
    if only_print:
        _print(session, store, missing)
        return
    if missing and not only_plan:
        await store.open()
        await store.close()
    _report(session, store, before, missing, is_plan=only_plan)


def _print(session: Session, store: Store, missing: list[Migration]) -> None:
    if session.as_json:
        session.print_json({"store": store.url, "missing": missing})
    elif missing:
        for migration in missing:
            session.echo(f"-- {migration.number:04} {migration.name}\n{migration.text.strip()}\n")
    else:
        session.echo_error(f"{store.url} is up to date: nothing to migrate.")


def _report(
    session: Session, store: Store, before: list[Migration], missing: list[Migration], *, is_plan: bool
) -> None:
    if session.as_json:
        listed = [
            {"number": one.number, "name": one.name, "applied": one.applied or not is_plan}
            | {"applied_now": not (one.applied or is_plan)}
            for one in before
        ]
        session.print_json({"store": store.url, "migrations": listed})
        return
    if not before:
        session.echo(f"{store.url} has no schema: nothing to migrate.")
        return
    for migration in before:
        status = "already applied" if migration.applied else "to apply" if is_plan else "applied"
        session.echo(f"{migration.number:04} {migration.name}: {status}")
    if not missing:
        session.echo(f"{store.url} is up to date.")
    elif is_plan:
        session.echo(f"{len(missing)} to apply: jobyard --store {store.url} migrate")
