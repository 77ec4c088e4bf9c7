"""`jobyard backup`: a consistent copy while workers write, which works when it is put in the place of the database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.support import Shop, error_code, shop
from tests.story.up import until

from jobyard import Jobyard
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.backup import back_up

__all__ = ["shop"]


def test_a_restored_backup_goes_on_where_it_was_made(shop: Shop) -> None:
    done = shop.enqueue("send", {"to": "done"})
    shop.work_off()
    waiting = shop.enqueue("send", {"to": "a"})
    running = shop.enqueue("hang")
    with shop.start("worker", "--queue", "slow", "--lease-seconds", "1") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "hanging\n"
        assert shop.run("backup", "copy.db").stdout.startswith("Backed up ")
        worker.kill()
        worker.wait()
    shop.enqueue("send", {"to": "after"})
    for end in ("", "-wal", "-shm"):
        Path(f"shop.db{end}").unlink(missing_ok=True)
    shutil.copy("copy.db", "shop.db")
    assert "FAIL" not in shop.run("audit").stdout
    assert shop.json("jobs", "show", done)["result"] == {"to": "done", "copies": 1}
    assert shop.json("jobs", "show", running)["state"] == "RUNNING"
    with shop.start("worker", "--lease-seconds", "1") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "hanging\n", "the job in flight runs again"
        until("the waiting one runs", lambda: shop.json("jobs", "show", waiting)["state"] == "COMPLETED")
        assert shop.json("jobs", "show", running)["deaths"] == 1
    assert len(shop.json("jobs", "list")["jobs"]) == 3


async def test_copies_beside_writers_are_of_one_moment(tmp_path: Path) -> None:
    """Counts and rows of each copy agree, although jobs are inserted without a pause."""
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")

    @yard.job()
    async def work(number: int) -> None: ...

    async with yard:
        inserted = 0

        async def insert() -> int:
            nonlocal inserted
            await yard.enqueue_many(*(work.call(number) for number in range(50)))
            inserted += 50
            return inserted

        await insert()
        for number in range(5):
            before = await insert()
            copying = threading.Thread(target=back_up, args=(tmp_path / "jobs.db", tmp_path / f"{number}.db"))
            copying.start()
            while copying.is_alive():
                await insert()
            copying.join()
            copy = SqliteStore(tmp_path / f"{number}.db")
            await copy.open()
            [queue] = await copy.queues()
            assert await copy.audit() == []
            await copy.close()
            assert before <= queue.waiting <= inserted
            assert queue.waiting % 50 == 0, "an insert is whole or absent"


def test_a_backup_is_private_complete_and_overwrites_nothing(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    assert shop.json("backup", "copy.db")["bytes"] == Path("copy.db").stat().st_size
    assert stat.S_IMODE(Path("copy.db").stat().st_mode) == 0o600
    assert sorted(path.name for path in Path().glob("*copy*")) == ["copy.db"]
    with closing(sqlite3.connect("file:copy.db?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    before = Path("copy.db").read_bytes()
    assert error_code(shop.run("backup", "copy.db")) == "not_possible"
    Path("link.db").symlink_to("nowhere")
    assert error_code(shop.run("backup", "link.db")) == "not_possible"
    assert Path("copy.db").read_bytes() == before
    assert error_code(shop.run("backup", "nowhere/copy.db")) == "not_possible"
    assert not Path("nowhere").exists()


def test_an_old_file_is_copied_as_it_is(shop: Shop) -> None:
    """The backup before an upgrade must be one that the old version can open."""
    shop.enqueue("send", {"to": "a"})
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("UPDATE jobyard_schema SET version = 1")
        connection.commit()
    assert shop.run("backup", "copy.db").exit_code == 0
    with closing(sqlite3.connect("copy.db")) as connection:
        assert connection.execute("SELECT version FROM jobyard_schema").fetchone()[0] == 1


def test_a_damaged_file_gives_no_backup(shop: Shop) -> None:
    shop.enqueue("send", {"to": "x" * 400})
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute("PRAGMA page_size").fetchone()[0]
    with Path("shop.db").open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        for offset in range(2 * page, size, page):
            file.seek(offset)
            file.write(b"\xff" * 64)
    result = shop.run("backup", "copy.db")
    assert error_code(result) == "not_a_database"
    assert sorted(path.name for path in Path().glob("*copy*")) == []


@pytest.mark.parametrize(
    ("url", "program"),
    [
        ("redis://:secret@localhost:6379/0", "redis-cli -u redis://localhost:6379/0 --rdb copy.db"),
        ("postgresql://jobs:secret@db/shop", "pg_dump --format=custom --file=copy.db postgresql://jobs@db/shop"),
    ],
)
def test_other_stores_name_their_program(shop: Shop, url: str, program: str) -> None:
    result = shop.run("backup", "copy.db", "--store", url)
    assert error_code(result) == "not_possible"
    assert program in result.stderr
    assert "secret" not in result.stderr


def test_queues_in_other_stores_are_named(shop: Shop) -> None:
    shop.enqueue("send", {"to": "a"})
    elsewhere = '{"other": "redis://:secret@queue-redis:6379/0"}'
    result = shop.run("backup", "copy.db", JOBYARD_STORE__QUEUES=elsewhere)
    assert (result.exit_code, Path("copy.db").exists()) == (0, True)
    assert "Queue other is kept in redis://queue-redis:6379/0, which is not in this backup." in result.stderr
