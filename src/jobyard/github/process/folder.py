"""The folder of one runner: a copy of the runner program, its home, its log, and a record that outlives the manager.

NAME/state.json   the record; only the manager can write it
NAME/runner/      the copy of the runner program, with the work of its job
NAME/home/        the home folder of the job
NAME/control/     `pid` and `exit`, written by the process itself
NAME/log          its output
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.github.process.processes import ProcessIdentity, boot_id

STATE = "state.json"
# Of a runner that was registered and used before: a copy must not have them.
LEFT_OUT = frozenset({"_work", "_diag", ".runner", ".credentials", ".credentials_rsaparams", ".runner_migrated"})


class Account(NamedTuple):
    """The user that a runner runs as."""

    name: str
    uid: int
    gid: int

    @classmethod
    def named(cls, name: str | None) -> Account:
        """Raises KeyError for an unknown user."""
        found = pwd.getpwnam(name) if name is not None else pwd.getpwuid(os.getuid())
        return cls(found.pw_name, found.pw_uid, found.pw_gid)

    @property
    def is_other(self) -> bool:
        return self.uid != os.getuid()


class ProcessRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a runner was launched with, and its process."""

    manager: str  # the instance label of the manager
    name: str
    uid: str
    org_name: str = ""
    repository: str | None = None
    profile: str = ""
    ticket_id: str | None = None
    runner_id: int | None = None
    requested_job_id: int | None = None
    annotations: dict[str, str] = {}
    created_at: Instant = 0
    started_at: Instant | None = None
    process: ProcessIdentity | None = None
    is_removed: bool = False


class RunnerFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runner = path / "runner"
        self.home = path / "home"
        self.control = path / "control"
        self.log = path / "log"

    @classmethod
    def create(cls, parent: Path, record: ProcessRecord) -> RunnerFolder:
        """A folder that has its record from the start. Raises FileExistsError."""
        if not parent.exists():
            parent.mkdir(parents=True)
            parent.chmod(0o755)  # whatever the umask: the runner's user passes through
        new = cls(parent / f".{record.name}.{record.uid}.new")
        new.path.mkdir()
        new.path.chmod(0o755)
        new.save(record)
        target = parent / record.name
        try:
            new.path.rename(target)
        except OSError as error:
            shutil.rmtree(new.path)
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                raise FileExistsError(target) from error
            raise
        return cls(target)

    def save(self, record: ProcessRecord) -> None:
        new = self.path / f"{STATE}.new"
        new.touch(mode=0o600)
        new.write_bytes(msgspec.json.encode(record))
        new.rename(self.path / STATE)

    def load(self) -> ProcessRecord | None:
        """None if it is not the folder of a runner."""
        try:
            return msgspec.json.decode((self.path / STATE).read_bytes(), type=ProcessRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def recorded_process(self) -> ProcessIdentity | None:
        """The process as it recorded itself, in case that the manager ended before it did."""
        try:
            pid, started = _read_short(self.control / "pid").split()
            return ProcessIdentity(int(pid), int(started), boot_id())
        except (OSError, ValueError):
            return None

    def exit_code(self) -> tuple[int, Instant] | None:
        """The exit code and when it was written, once the runner has ended by itself."""
        path = self.control / "exit"
        try:
            return int(_read_short(path)), path.lstat().st_mtime_ns // 1_000_000
        except (OSError, ValueError):
            return None

    def fill(self, source: Path, account: Account) -> None:
        """Copy the runner program, and give what it may write to its user."""
        self.runner.mkdir()
        for folder in (self.home, self.control, self.runner):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
        # Hard links are safe only if the runner cannot write to the shared files.
        _copy_content(source, self.runner, link_for=account.uid if account.is_other else None)
        if account.is_other:
            for path in (self.home, self.control, self.runner, *_own_entries(self.runner)):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)

    def remove(self) -> None:
        """Delete the folder; the record goes last, so that a removal that was cut off can be finished."""
        for entry in list(self.path.iterdir()):
            if entry.name != STATE:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(self.path)


def _read_short(path: Path) -> str:
    """The content of a small file. Its owner is the job's user, so it may be a pipe or a link by now."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, 64).decode("ascii")
    finally:
        os.close(file)


def _copy_content(source: Path, target: Path, link_for: int | None) -> None:
    for entry in os.scandir(source):
        if entry.name in LEFT_OUT:
            continue
        copy = target / entry.name
        if entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))  # noqa: PTH115
        elif entry.is_dir():
            copy.mkdir()
            shutil.copymode(entry.path, copy)
            _copy_content(Path(entry.path), copy, link_for)
        elif not (link_for is not None and _can_link(entry.stat(), link_for) and _linked(entry.path, copy)):
            shutil.copy2(entry.path, copy)


def _can_link(found: os.stat_result, uid: int) -> bool:
    return found.st_uid != uid and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _linked(source: str, target: Path) -> bool:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        return False
    return True


def _own_entries(folder: Path) -> Iterator[Path]:
    """Everything below the folder but hard links, which belong to the source."""
    for entry in os.scandir(folder):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield path
            yield from _own_entries(path)
        elif entry.is_symlink() or entry.stat(follow_symlinks=False).st_nlink == 1:
            yield path
