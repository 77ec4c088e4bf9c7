"""Run the static checks and every test in parts, several at once, with live progress: `make test`.

A test that fails has failed. Arguments select parts by name: `python -m tests.run check stories`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.progress import PROGRESS_VARIABLE, Collected, Finished, decode
from tests.servers.folders import RUN_VARIABLE, new_folder

# Most tests wait for a lease, a notification or a process, so more parts than cores keep the cores busy.
PARALLEL = 6
# Without a terminal a line of counts is printed this often.
REPORT_SECONDS = 20.0
COMMANDS = ("test_up.py", "test_up_schedules.py", "test_programs.py", "test_readme.py", "test_cron_example.py")
# In this order: the longest first, and those that mostly wait beside those that mostly compute.
PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("browser", ("tests/browser",)),
    ("server", ("tests/server", "tests/client")),
    ("runners", ("tests/github",)),
    ("worker", ("tests/worker", "tests/scheduler", "tests/executors", "tests/live_events", "tests/testing")),
    ("stories", ("tests/story",)),
    ("conformance", ("tests/conformance",)),
    ("faults", ("tests/story/faults",)),
    ("stores", ("tests/stores",)),
    ("cli", ("tests/cli", "tests/app")),
    ("sandbox", ("tests/sandbox",)),
    ("simulation", ("tests/github/test_simulation.py",)),
    ("commands", tuple(f"tests/story/{name}" for name in COMMANDS)),
    ("workflows", ("tests/workflows", "tests/story/workflows")),
    ("launches", ("tests/github/test_runner_story.py", "tests/github/test_manager_process.py")),
    ("machine", ("tests/conformance/test_machine.py",)),
    ("examples", ("tests/example_apps",)),
)
REST = ("rest", ("tests", "src"))
CHECK = "check"
# Loading schemathesis takes longer than many parts' tests together; its one test runs it in a process of its own.
# The plugin of Hypothesis takes a fifth of the start of pytest where nothing uses it.
PLUGINS = ("-p", "tests.progress", "-p", "no:schemathesis", "-p", "no:anyio")
WITHOUT_HYPOTHESIS = ("-p", "no:hypothesispytest")
WITH_PROPERTIES = ("machine", "stores", "rest")
# Compiled modules are kept: compiling them again in each of some hundred processes takes minutes in all.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SLOWEST_SHOWN = 15
_ENGINES = re.compile(r"^conformance: .*$", re.MULTILINE)  # how many tests ran on each store


def selection(name: str) -> list[str]:
    """The paths of a part, without those that are parts of their own."""
    parts = dict((REST, *PARTS))
    own = parts[name]
    others = [path for part, paths in parts.items() if part != name for path in paths]
    return [*own, *(f"--ignore={path}" for path in others if any(path.startswith(f"{each}/") for each in own))]


class Part(NamedTuple):
    """One finished pytest process."""

    name: str
    exit_code: int
    output: str
    seconds: float
    processor_seconds: float  # with its child processes
    tests: Sequence[Finished]

    @property
    def summary(self) -> str:
        """The last line of the output."""
        return self.output.rstrip().rpartition("\n")[2].strip("= ")

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.tests)


class Display:
    """Progress of all parts: bars on a terminal, lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console()
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._reported_at = time.monotonic()
        self._lock = threading.Lock()

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, name: str) -> None:
        with self._lock:
            self._tasks[name] = self._bars.add_task(name, total=None)
            if not self._console.is_terminal:
                self.say(f"{name}: started")

    def update(self, name: str, done: int, total: int) -> None:
        with self._lock:
            self._bars.update(self._tasks[name], completed=done, total=total or None)
            self._counts[name] = (done, total)
            now = time.monotonic()
            if not self._console.is_terminal and now - self._reported_at >= REPORT_SECONDS:
                self._reported_at = now
                self.say("  " + ", ".join(f"{part} {of[0]}/{of[1]}" for part, of in self._counts.items()))

    def end(self, part: Part) -> None:
        with self._lock:
            self._counts.pop(part.name, None)
            for line in (*_ENGINES.findall(part.output), f"{part.name}: {part.summary}"):
                self.say(line)


def run_check(display: Display) -> Part:
    """The static checks, beside the first tests: they use one core, and most tests wait."""
    display.begin(CHECK)
    part = run(CHECK, ["make", "--no-print-directory", "check"], {}, display)
    display.update(CHECK, 1, 1)
    return part


def run_part(name: str, folder: Path, display: Display) -> Part:
    display.begin(name)
    plugins = PLUGINS if name in WITH_PROPERTIES else (*PLUGINS, *WITHOUT_HYPOTHESIS)
    # `tmp_path` is in memory, where a sync takes no time.
    words = [sys.executable, "-m", "pytest", *plugins, f"--basetemp={folder / name}", *selection(name)]
    return run(name, words, {RUN_VARIABLE: str(folder)}, display)


def run(name: str, command: Sequence[str], variables: Mapping[str, str], display: Display) -> Part:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jobyard-run-") as folder:
        log, progress = Path(folder, "output"), Path(folder, "progress")
        progress.touch()
        # A file, not a pipe: a process that a test leaves behind must not keep this one waiting.
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**ENVIRONMENT, **variables, PROGRESS_VARIABLE: str(progress)},
            )
        tests, exit_code, processor_seconds = follow(name, process.pid, progress, display)
        text = log.read_text("utf-8", "replace")
        return Part(name, exit_code, text, time.monotonic() - began, processor_seconds, tests)


def follow(name: str, pid: int, progress: Path, display: Display) -> tuple[list[Finished], int, float]:
    """Read the progress file until the process has ended; report each failure when it happens."""
    tests: list[Finished] = []
    total = 0
    with progress.open("rb") as lines:
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            for event in decode(lines):
                if isinstance(event, Collected):
                    total = event.count
                    continue
                tests.append(event)
                if event.outcome == "failed":
                    display.say(f"FAILED {event.test}")
            display.update(name, len(tests), total)
            if ended:
                return tests, os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
            time.sleep(0.2)


def main(names: Sequence[str]) -> int:
    known = [name for name, _ in (REST, *PARTS)]
    if unknown := set(names) - {CHECK, *known}:
        print(f"No such part: {', '.join(sorted(unknown))}. Parts: {', '.join([CHECK, *known])}.", file=sys.stderr)
        return 2
    parts = [name for name in known if not names or name in names]
    began = time.monotonic()
    folder = new_folder("r", with_programs=True)
    with Display() as display, ThreadPoolExecutor(PARALLEL) as pool:
        finished: list[Part] = []
        submitted = [pool.submit(run_check, display)] if not names or CHECK in names else []
        submitted += [pool.submit(run_part, name, folder, display) for name in parts]
        for running in as_completed(submitted):
            finished.append(running.result())
            display.end(finished[-1])
    for part in finished:
        if part.exit_code:
            print(f"\n{part.name}:\n{part.output}")
    failed = report(finished, time.monotonic() - began)
    if not failed:  # else the next run removes it, so that the files of a failed test can be read
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed > 0)


def report(parts: Sequence[Part], seconds: float) -> int:
    """Print what took long; return the number of failures."""
    tests = [test for part in parts for test in part.tests]
    print(f"\nSlowest tests of {len(tests)}:")
    for test in sorted(tests, key=lambda test: -test.seconds)[:SLOWEST_SHOWN]:
        print(f"{test.seconds:7.1f} s  {test.test}")
    # A part that ends badly without a failed test (a collection error, a crash of pytest) counts as one failure.
    failed = sum(max(part.count("failed"), int(part.exit_code != 0)) for part in parts)
    passed, skipped = (sum(part.count(outcome) for part in parts) for outcome in ("passed", "skipped"))
    for part in sorted(parts, key=lambda part: -part.seconds):
        print(f"{part.seconds:7.1f} s, {part.processor_seconds:6.1f} s of a processor  {part.name}")
    print(f"{seconds:7.1f} s, {sum(part.processor_seconds for part in parts):6.1f} s of a processor  in all")
    print(f"tests: {passed} passed, {failed} failed, {skipped} skipped")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
