"""The fault and race suites with full counts, recorded in docs/reliability.md: `make soak`.

Three lanes run side by side: what mostly waits beside what mostly computes. Options continue the last run, and the page
says so: `--again 'kill_storm and postgres'` runs tests again that these words choose (`pytest -k`), `--missing` the
suites that an interrupted run has left out, `--suite 'virtual time'` those with these words in their names.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import msgspec
from bench.machine import Machine, examine

from tests import mutants
from tests.servers.absent import find
from tests.story.results import RESULTS_VARIABLE, Result

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "reliability.md"
LAST = ROOT / ".soak.json"
COLUMNS = (
    "what was run",
    "processes",
    "jobs",
    "claims",
    "kills",
    "refused",
    "reclaimed",
    "slowest recovery",
    "violations",
    "seconds",
)


class Suite(msgspec.Struct, frozen=True):
    name: str
    paths: tuple[str, ...]
    lane: str = "short"


class Case(msgspec.Struct, frozen=True):
    """One test, as pytest saw it."""

    name: str
    file: str
    seconds: float
    outcome: str  # "passed", "failed" or "skipped"
    is_again: bool = False

    @property
    def story(self) -> str:
        """As its result calls itself."""
        return self.name.removeprefix("test_").replace("_", " ")


class Ran(msgspec.Struct, frozen=True):
    suite: Suite
    cases: list[Case]
    results: list[Result]
    began: datetime

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases if case.outcome == "failed"]

    def with_again(self, other: Ran) -> Ran:
        """What was run once more counts instead."""
        ran = [case for case in other.cases if case.outcome != "skipped"]
        again = {(case.file, case.name): msgspec.structs.replace(case, is_again=True) for case in ran}
        stories = {case.story for case in ran}
        results = [result for result in self.results if result.story not in stories]
        cases = [again.get((case.file, case.name), case) for case in self.cases]
        stories_by_name = sorted([*results, *other.results], key=lambda result: result.story)
        return Ran(self.suite, cases, stories_by_name, self.began)


class Record(msgspec.Struct, frozen=True):
    began: datetime
    seconds: float
    ran: list[Ran]


def suites() -> Iterator[Suite]:
    yield Suite("stories with real processes", ("tests/story",), lane="stories")
    crashes = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "stores").rglob("test_*crash*.py"))
    if crashes:
        yield Suite("SQLite crashes", tuple(crashes))
    yield Suite(
        "Redis commands that fail half-way, damaged queues, repair",
        (
            "tests/stores/test_redis_damage.py",
            "tests/stores/test_redis_permissions.py",
            "tests/conformance/suite/test_repair.py",
            "tests/cli/test_audit.py",
        ),
    )
    yield Suite(
        "very many delayed jobs due at once",
        (
            "tests/stores/test_postgres_due.py",
            "tests/stores/test_redis_cost.py",
            "tests/stores/test_sqlite_cost.py",
            "tests/stores/test_sqlite.py",
            "tests/conformance/suite/test_admission.py",
            "tests/worker/test_backoff.py",
        ),
    )
    yield Suite(
        "steps of the store's clock", ("tests/worker/test_clock_step.py", "tests/conformance/suite/test_lease.py")
    )
    yield Suite(
        "a million jobs: every page and search of the dashboard in under a second",
        ("tests/browser/test_dashboard_many_jobs.py",),
    )
    yield Suite("limits of programs: wall-clock time to 5 ms", ("tests/sandbox/test_accuracy.py",))
    yield Suite("reports while the store is away", ("tests/worker/test_reporting.py", "tests/worker/test_faults.py"))
    counts = importlib.import_module("tests.conformance.test_machine").COUNTS
    name = f"every store against the reference: {counts.max_examples:,} histories of {counts.stateful_step_count} steps"
    yield Suite(name, ("tests/conformance/test_machine.py",))
    yield Suite("properties of the domain's rules", ("tests/domain",))
    yield Suite(
        "GitHub runners: stories with real processes",
        ("tests/github/test_runner_story.py", "tests/github/test_manager_process.py"),
    )
    seeds = importlib.import_module("tests.github.test_simulation").SEEDS
    shares = ", ".join(f"{count:,} on {engine}" for engine, count in seeds.items())
    name = f"GitHub runners in virtual time: {sum(seeds.values()):,} seeds ({shares}), and a crash at every call"
    yield Suite(name, ("tests/github/test_simulation.py",), lane="simulation")


def run(suite: Suite, *words: str) -> Ran:
    """Run pytest on one suite; what it prints goes to a file of its own, whose name is printed."""
    began = datetime.now(UTC)
    folder = Path(tempfile.mkdtemp(prefix="jobyard-soak-"))
    results, report, log = folder / "results.jsonl", folder / "report.xml", folder / "output"
    results.touch()
    print(f"{began:%H:%M:%S} {suite.name}: started, see {log}", flush=True)
    command = [sys.executable, "-m", "pytest", "-v", "--no-header", f"--junitxml={report}", *words, *suite.paths]
    with log.open("wb") as output:
        environment = {**os.environ, RESULTS_VARIABLE: str(results)}
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=output, stderr=subprocess.STDOUT)
    summary = log.read_text("utf-8", "replace").rstrip().rpartition("\n")[2].strip("= ")
    print(f"{datetime.now(UTC):%H:%M:%S} {suite.name}: {summary}", flush=True)
    reported = [msgspec.json.decode(line, type=Result) for line in results.read_bytes().splitlines()]
    if not report.exists():
        return Ran(suite, [Case("pytest itself", suite.paths[0], 0.0, "failed")], reported, began)
    return Ran(suite, list(cases(report)), reported, began)


def cases(report: Path) -> Iterator[Case]:
    for element in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in element}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        yield Case(element.get("name", ""), element.get("classname", ""), float(element.get("time", 0)), outcome)


def rows(ran: Iterable[Ran]) -> Iterator[tuple[str, ...]]:
    for one in ran:
        for result in one.results:
            history, recovery = result.history, result.recovery_seconds
            yield (
                result.story,
                *(f"{number:,}" for number in (result.processes, history.inserted, history.claims, result.kills)),
                *(f"{number:,}" for number in (history.refused, history.reclaimed)),
                f"{max(recovery):.1f} s" if recovery else "-",
                str(len(result.violations)),
                f"{result.seconds:.0f}",
            )
        if not one.results:
            seconds = sum(case.seconds for case in one.cases)
            passed = sum(case.outcome == "passed" for case in one.cases)
            yield (f"{one.suite.name} ({passed} tests)", *["-"] * 7, str(len(one.failed)), f"{seconds:.0f}")


def page(record: Record, machine: Machine) -> str:
    ran, began, seconds = record.ran, record.began, record.seconds
    everything = [case for one in ran for case in one.cases]
    names = {one.suite.name for one in ran}
    last = max((one.began for one in ran), default=began)
    failed = [case for one in ran for case in one.failed]
    violations = [(result.story, words) for one in ran for result in one.results for words in result.violations]
    passed, skipped = (sum(case.outcome == outcome for case in everything) for outcome in ("passed", "skipped"))
    lines = [
        "# Reliability: the last full run",
        "",
        "Generated by `make soak` (`python -m tests.soak`). Do not edit this page; run the command again.",
        "",
        "Real processes compete on one store while they are killed, frozen and stopped, and while servers are killed,",
        "cut off, stalled and filled up. Each process records its requests to the store and the responses. From these",
        "records `jobyard.testing.history` checks limits at every instant, order and fencing, and that no job is lost",
        "and none accepted twice. A violation is a broken guarantee.",
        "",
        f"- **Result**: {passed} tests passed, {len(failed)} failed, {skipped} skipped or known to fail, "
        f"{len(violations)} violations",
        f"- **Date**: suites began from {began:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s in all",
        f"- **Machine**: {machine.processor}, {machine.cores} cores, {machine.system}, Python {machine.python}, "
        f"SQLite {machine.sqlite}",
        f"- **Servers**: {', '.join(servers())}",
        f"- **Durability**: SQLite power-safe (`synchronous=FULL`, the default), PostgreSQL too (`fsync`, "
        f"`synchronous_commit`), Redis with `appendfsync everysec`; on {machine.filesystem}, one sync takes "
        f"{machine.fdatasync_us:.0f} µs",
        *(f"- **Beware**: {warning}" for warning in machine.warnings),
        *(f"- **Not run**: {suite.name}" for suite in suites() if suite.name not in names),
        *(f"- **Run again afterwards**: `{case.name}`" for case in everything if case.is_again),
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "--:|" * (len(COLUMNS) - 1),
        *("| " + " | ".join(row) + " |" for row in rows(ran)),
        "",
        "*kills*: killed workers, and outages of a server. *refused*: settlements that arrived after their lease",
        "was lost, as intended. *reclaimed*: expired leases whose jobs returned to",
        "waiting. *slowest recovery*: from a SIGKILL until the last of the killed worker's jobs was claimed elsewhere,",
        "with leases of 1.5 s unless the default lease is named; of a server: from its return until the next claim.",
    ]
    if failed or violations:
        lines += ["", "## What went wrong", "", *(f"- {case.file} `{case.name}` failed" for case in failed)]
        lines += [f"- {story}: {words}" for story, words in violations[:100]]
    return "\n".join(lines) + "\n"


def servers() -> Iterator[str]:
    for program in ("redis-server", "postgres", "pgbouncer"):
        found = find(program)
        if found is None:
            yield f"no {program}"
            continue
        words = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"\d+(\.\d+)+", words)
        yield f"{program} {version[0] if version else '?'}"


def run_lanes(chosen: Sequence[Suite], record: Record, machine: Machine) -> Record:
    """Run the suites of each lane one after another, and the lanes side by side, each in a thread."""
    order = [suite.name for suite in suites()]
    others = [one for one in record.ran if one.suite.name not in {suite.name for suite in chosen}]
    started, done, lock = time.monotonic(), list(others), threading.Lock()

    def run_lane(lane: str) -> None:
        for suite in chosen:
            if suite.lane != lane:
                continue
            ran = run(suite)
            with lock:
                done.append(ran)
                done.sort(key=lambda one: order.index(one.suite.name))
                # Written after each suite, so that an interrupted run is recorded as one.
                write(so_far(), machine)

    def so_far() -> Record:
        return Record(record.began, record.seconds + time.monotonic() - started, list(done))

    with ThreadPoolExecutor() as pool:
        for lane in as_completed([pool.submit(run_lane, lane) for lane in {suite.lane for suite in chosen}]):
            lane.result()
    return so_far()


def write(record: Record, machine: Machine) -> None:
    LAST.write_bytes(msgspec.json.encode(record))
    RECORD.parent.mkdir(exist_ok=True)
    faults = mutants.section()  # of the page as it was
    RECORD.write_text(f"{page(record, machine).rstrip()}\n\n{faults}\n")


def main() -> int:
    os.environ["JOBYARD_SOAK"] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", metavar="WORDS", help="run these tests of the last run again, as `pytest -k`")
    parser.add_argument("--missing", action="store_true", help="run the suites that the last run has left out")
    parser.add_argument("--suite", metavar="WORDS", help="run the suite with these words in its name")
    chosen = parser.parse_args()
    machine = examine()
    continues = chosen.again or chosen.missing or chosen.suite
    record = Record(datetime.now(UTC), 0.0, [])
    if continues and LAST.exists():
        record = msgspec.json.decode(LAST.read_bytes(), type=Record)
    if chosen.again:
        ran = [one.with_again(run(one.suite, "-k", chosen.again)) for one in record.ran]
        record = Record(record.began, record.seconds, ran)
        write(record, machine)
    else:
        known = {one.suite.name for one in record.ran}
        wanted = [suite for suite in suites() if not (chosen.missing and suite.name in known)]
        wanted = [suite for suite in wanted if (chosen.suite or "") in suite.name]
        record = run_lanes(wanted, record, machine)
    print(f"\nRecorded in {RECORD.relative_to(ROOT)}.")
    return 1 if any(one.failed for one in record.ran) else 0


if __name__ == "__main__":
    sys.exit(main())
