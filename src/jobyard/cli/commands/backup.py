"""`jobyard backup`: copy the SQLite file of a store while it is in use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from jobyard.cli.require_store import require_database
from jobyard.cli.session import Session, async_command
from jobyard.config.store_url import shown
from jobyard.errors import NotPossible
from jobyard.ports.store import Store
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.backup import back_up

PAGE = "docs/howto/backup.md"
# The programs of other stores that do the same, by scheme; see the page.
PROGRAMS = {
    "postgresql": "pg_dump --format=custom --file={file} {url}",
    "redis": "redis-cli -u {url} --rdb {file}",
    "rediss": "redis-cli -u {url} --rdb {file}",
}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@async_command
async def backup(session: Session, file: Path) -> None:
    """Copy the SQLite store to FILE while it is in use.

    The copy is a consistent snapshot. It is checked, and readable only by you, because it contains payloads. Existing
    files are not overwritten, and FILE appears when it is complete. To restore it, stop all processes and put
    it in place of the database. Other stores have their own programs; the error names the command.

    \b
    Example:
      jobyard backup /backups/jobs-2026-11-18.db
    """
    store = session.main_store()
    if not isinstance(store, SqliteStore):
        raise NotPossible(why_not(store, file))
    await require_database(store)
    size = await asyncio.to_thread(back_up, store.path, file)
    session.report({"store": store.url, "file": str(file), "bytes": size}, f"Backed up {store.path} to {file}.")
    for queue, url in sorted(session.configuration.store.queues.items()):
        session.echo_error(f"Queue {queue} is kept in {shown(url)}, which is not in this backup.")


def why_not(store: Store, file: Path) -> str:
    scheme = store.url.partition(":")[0]
    if scheme not in PROGRAMS:
        return f"Cannot back up {store.url}: it is not kept in a file."
    command = PROGRAMS[scheme].format(url=store.url, file=file)
    return f"Cannot back up {store.url}: this command copies SQLite files. Run `{command}`; see {PAGE}."
