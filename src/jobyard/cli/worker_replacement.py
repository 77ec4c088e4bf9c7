"""Replaces the process of a worker that reached its memory limit."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time

import click

from jobyard.app.process_manager import REPLACE_EXIT_CODE
from jobyard.cli.session import Session
from jobyard.config.platform_keys import memory_size
from jobyard.domain.platforms import memory_budget
from jobyard.domain.text import counted, size_text
from jobyard.errors import ConfigurationError
from jobyard.worker.memory import DRAIN_SHARE, is_measurable, memory_bytes, process_tree

log = logging.getLogger("jobyard.worker")

# What handlers left behind has this long to end by SIGTERM.
CHILD_SECONDS = 5.0


def memory_option(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    return None if value is None else memory_size("--memory-limit", value)


def memory_limit(session: Session, given: int | None, queues: tuple[str, ...]) -> int | None:
    """The limit in bytes; by default that of the classes of the platforms. None: no limit."""
    if given is None:
        # Without /proc only a limit that was asked for is an error.
        return memory_budget(session.configuration.platforms, queues) if is_measurable() else None
    return given or None


def require_memory(limit: int) -> None:
    """Reject a limit that the worker could not keep: it would replace itself for ever."""
    if not is_measurable():
        raise ConfigurationError("Cannot use a memory limit: this system has no /proc. Omit --memory-limit.")
    used = memory_bytes(0)
    if used >= limit * DRAIN_SHARE:
        raise ConfigurationError(
            f"Cannot use a memory limit of {size_text(limit)}: the worker uses {size_text(used)} before its first job, "
            f"and takes no jobs above {DRAIN_SHARE:.0%} of the limit. Raise --memory-limit."
        )


def replace_process(session: Session, *, is_supervised: bool) -> None:
    """End the child processes, then run the same command again; a supervisor starts a new process instead."""
    end_children()
    if is_supervised:
        raise click.exceptions.Exit(REPLACE_EXIT_CODE)
    log.info("starting again, with the same command")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # The process id stays, so that systemd and containers see one process that goes on.
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, os.environ | session.notify.inherited())  # noqa: S606


def end_children() -> None:
    """End processes that handlers left behind: they would use the memory of the next process too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        children = process_tree(os.getpid())[1:]
        if not children:
            return
        left = counted(len(children), "child process", "child processes")
        log.warning("sending %s to %s that handlers left behind", number.name, left)
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + CHILD_SECONDS
        while _has_children() and time.monotonic() < deadline:
            time.sleep(0.02)  # between two looks: a child that obeys ends within milliseconds


def _has_children() -> bool:
    """Reap those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return len(process_tree(os.getpid())) > 1
