"""Judging of runs: compare output with what was expected, or let a checker program decide."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobyard.executors.sandbox.program import Checker, Comparison, Program, TestCase
from jobyard.sandbox.protocol import File, RunFinished, RunRequest, RunVerdict

MAX_QUOTED = 200  # characters of a line, in the description of a mismatch
MAX_MESSAGE = 1000  # characters of a checker's message
CHECKER_FILES = ("input.txt", "output.txt", "expected.txt")
ACCEPTS, REJECTS = 0, (1, 2)  # exit codes of checkers


class Judgement(enum.StrEnum):
    """Verdicts on a run that ended with OK; a run that did not keeps the verdict of the sandbox."""

    ACCEPTED = "ACCEPTED"
    WRONG_ANSWER = "WRONG_ANSWER"
    CHECKER_ERROR = "CHECKER_ERROR"  # the checker did not decide
    SKIPPED = "SKIPPED"  # an earlier case failed, and the request stops at the first failure


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    verdict: str
    share: float = 0.0  # of the points, 0 to 1
    message: str = ""  # of the checker
    mismatch: dict[str, Any] | None = None


def compare(expected: bytes, actual: bytes, how: Comparison, tolerance: float) -> Judged:
    """Judge an output by the expected one."""
    match how:
        case Comparison.EXACT:
            is_equal = expected == actual
        case Comparison.LINES:
            is_equal = _lines(expected) == _lines(actual)
        case Comparison.TOKENS:
            is_equal = expected.split() == actual.split()
        case Comparison.NUMBERS:
            is_equal = _equal_numbers(expected.split(), actual.split(), tolerance)
    if is_equal:
        return Judged(verdict=Judgement.ACCEPTED, share=1.0)
    return Judged(verdict=Judgement.WRONG_ANSWER, mismatch=first_difference(expected, actual))


def _lines(data: bytes) -> list[bytes]:
    """
    >>> _lines(b"a \\r\\nb\\n\\n") == _lines(b"a\\nb")
    True
    """
    return [line.rstrip() for line in data.rstrip().split(b"\n")]


def _equal_numbers(expected: Sequence[bytes], actual: Sequence[bytes], tolerance: float) -> bool:
    return len(expected) == len(actual) and all(
        one == other or _is_close(one, other, tolerance) for one, other in zip(expected, actual, strict=True)
    )


def _is_close(one: bytes, other: bytes, tolerance: float) -> bool:
    """
    >>> _is_close(b"1.0", b"1.0000001", 1e-6), _is_close(b"1", b"nan", 1e-6), _is_close(b"a", b"b", 1)
    (True, False, False)
    """
    try:
        first, second = float(one), float(other)
    except ValueError:
        return False
    return math.isfinite(second) and math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance)


def first_difference(expected: bytes, actual: bytes) -> dict[str, Any]:
    """The first line that differs, ignoring white space at its end unless nothing else differs.

    >>> first_difference(b"1\\n2\\n", b"1\\n3\\n")
    {'line': 2, 'expected': '2', 'actual': '3'}
    >>> first_difference(b"1\\n", b"1")
    {'line': 2, 'expected': '', 'actual': None}
    """
    for split in (_lines, lambda data: data.split(b"\n")):
        wanted, seen = split(expected), split(actual)
        for number in range(max(len(wanted), len(seen))):
            one = wanted[number] if number < len(wanted) else None
            other = seen[number] if number < len(seen) else None
            if one != other:
                return {"line": number + 1, "expected": _quoted(one), "actual": _quoted(other)}
    return {"line": 1, "expected": _quoted(expected), "actual": _quoted(actual)}


def _quoted(line: bytes | None) -> str | None:
    if line is None:
        return None
    text = line[: 4 * MAX_QUOTED].decode(errors="replace")
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def checker_request(checker: Checker, case: TestCase, output: bytes, scope: str) -> RunRequest:
    """A run of the checker: its arguments are the names of the input, the output and the expected output."""
    data = (case.stdin, output, case.expected or b"")
    files = tuple(File(name=name, data=content) for name, content in zip(CHECKER_FILES, data, strict=True))
    return RunRequest(
        id=0,
        language=checker.language,
        source=checker.source.encode(),
        args=CHECKER_FILES,
        files=files,
        limits=checker.limits,
        scope=scope,
    )


def judged_by_checker(finished: RunFinished) -> Judged:
    """The decision of a checker: exit code 0 accepts, 1 and 2 reject; a line `points 0.5` gives a part of the points.

    Whatever else happens to it is its own error, and never accepts an output.
    """
    text = finished.stdout.decode(errors="replace")
    share, lines = None, []
    for line in text.splitlines():
        found = _share(line)
        if found is None:
            lines.append(line)
        else:
            share = found
    # What a checker has to say is often in stderr: testlib writes there, and so does an interpreter that fails.
    message = ("\n".join(lines).strip() or finished.stderr.decode(errors="replace").strip())[-MAX_MESSAGE:]
    if finished.verdict is RunVerdict.OK and finished.exit_code == ACCEPTS:
        return Judged(verdict=Judgement.ACCEPTED, share=1.0 if share is None else share, message=message)
    if finished.verdict is RunVerdict.RUNTIME_ERROR and finished.exit_code in REJECTS:
        return Judged(verdict=Judgement.WRONG_ANSWER, share=0.0 if share is None else share, message=message)
    why = f"The checker ended with {finished.verdict}, exit code {finished.exit_code}."
    if finished.compiled is not None and finished.verdict is RunVerdict.COMPILE_ERROR:
        why = f"The checker did not compile: {finished.compiled.stderr.decode(errors='replace').strip()}"
    elif finished.stderr:
        why = f"{why} {finished.stderr.decode(errors='replace').strip()}"
    return Judged(verdict=Judgement.CHECKER_ERROR, message=why[:MAX_MESSAGE])


def _share(line: str) -> float | None:
    """
    >>> _share("points 0.5"), _share("points 7"), _share("points nan"), _share("pointless")
    (0.5, 1.0, 0.0, None)
    """
    word, _, rest = line.partition(" ")
    if word != "points":
        return None
    try:
        value = float(rest)
    except ValueError:
        return None
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def summary(program: Program, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result of a test set: its cases in order, the points, and the verdict of the first case that failed."""
    failed = next((each["verdict"] for each in results if each["verdict"] != Judgement.ACCEPTED), Judgement.ACCEPTED)
    times = [each["execution_time_ms"] for each in results if "execution_time_ms" in each]
    peaks = [each["memory_peak_bytes"] for each in results if each.get("memory_peak_bytes") is not None]
    found: dict[str, Any] = {
        "verdict": failed,
        "passed": sum(each["verdict"] == Judgement.ACCEPTED for each in results),
        "points": total_points(each["points"] for each in results),
        "max_points": total_points(case.points for case in program.tests),
        "execution_time_ms": max(times, default=0.0),
        "memory_peak_bytes": max(peaks, default=None),
        "results": list(results),
    }
    if results and "compile" in results[0]:
        found["compile"] = results[0]["compile"]
    return found


def total_points(points: Iterable[float]) -> int | float:
    """The sum, as a whole number if it is one.

    >>> total_points([1, 2.0]), total_points([0.1, 0.2])
    (3, 0.3)
    """
    total = round(math.fsum(points), 9)
    return int(total) if total.is_integer() else total
