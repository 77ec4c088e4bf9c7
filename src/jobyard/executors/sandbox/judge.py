"""Judging of runs: compare output with what was expected, or let a checker program decide."""

from __future__ import annotations

import decimal
import enum
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobyard.executors.sandbox.bounds import MAXIMUMS
from jobyard.executors.sandbox.program import Checker, Comparison, Program, TestCase
from jobyard.sandbox.protocol import File, RunFinished, RunRequest, RunVerdict

MAX_QUOTED = 200  # characters of a line, in the description of a mismatch
MAX_MESSAGE = 1000  # characters of a checker's message
CHECKER_FILES = ("input.txt", "output.txt", "expected.txt")
ACCEPTS, REJECTS, GIVES_POINTS = 0, (1, 2), 7  # exit codes of checkers; those of testlib are among them
ECHO_FACTOR = 4  # bytes of `\\xff`, in which a byte is often shown

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
MAX_NUMBER = 1000  # characters of a number, and its largest exponent; anything beyond is a word
# Enough digits for the difference of any two numbers, so that nothing is rounded.
_EXACT = decimal.Context(prec=8 * MAX_NUMBER, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


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
    allowed = decimal.Decimal(repr(tolerance))
    return len(expected) == len(actual) and all(
        one == other or _is_close(one, other, allowed) for one, other in zip(expected, actual, strict=True)
    )


def _is_close(one: bytes, other: bytes, tolerance: decimal.Decimal) -> bool:
    """Whether both are numbers that differ by no more than the tolerance, absolute or relative; nothing is rounded.

    >>> [_is_close(b"1.0", other, decimal.Decimal("1e-6")) for other in (b"1.0000001", b"nan", b"a")]
    [True, False, False]
    >>> one, exact = 2**53 + 1, decimal.Decimal(0)
    >>> [_is_close(b"%d" % one, other, exact) for other in (b"%d" % (one - 1), b"%d.0" % one)]
    [False, True]
    """
    first, second = _number(one), _number(other)
    if first is None or second is None:
        return False
    difference = _EXACT.subtract(first, second).copy_abs()
    largest = max(first.copy_abs(), second.copy_abs())
    return difference <= tolerance or difference <= _EXACT.multiply(tolerance, largest)


def _number(word: bytes) -> decimal.Decimal | None:
    """The value of a decimal number; None for any other word, for nan and inf, and for numbers that are too long.

    >>> [_number(each) for each in (b"-1.50", b"1e1000", b"1e1001", b"nan", b"1_0", b"9" * 1001)]
    [Decimal('-1.50'), Decimal('1E+1000'), None, None, None, None]
    """
    if len(word) > MAX_NUMBER or not _NUMBER.fullmatch(word):
        return None
    exponent = word.lower().partition(b"e")[2]
    return decimal.Decimal(word.decode()) if abs(int(exponent or b"0")) <= MAX_NUMBER else None


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
    # A checker may repeat what it read, even escaped: a long output must not end it at its own limit.
    room = min(checker.limits.output_bytes + ECHO_FACTOR * len(output), MAXIMUMS["max_output_bytes"])
    return RunRequest(
        id=0,
        language=checker.language,
        source=checker.source.encode(),
        args=CHECKER_FILES,
        files=files,
        limits=msgspec.structs.replace(checker.limits, output_bytes=room),
        scope=scope,
    )


def judged_by_checker(finished: RunFinished, output: bytes) -> Judged:
    """The decision of a checker on an output: exit code 0 accepts, 1 and 2 reject, 7 gives a part of the points.

    A checker may print what it read, so its text is partly that of the program that it judges. Only the first line of
    a checker that accepts or exits with 7 can give points, and those of a checker that rejects are none.

    Whatever else happens to it is its own error, and never accepts an output. That includes an exception that it does
    not handle, though most languages then end with 1.
    """
    text, errors = (data.decode(errors="replace") for data in (finished.stdout, finished.stderr))
    first, _, rest = text.partition("\n")
    ended = finished.exit_code if finished.verdict in (RunVerdict.OK, RunVerdict.RUNTIME_ERROR) else None
    if ended in REJECTS and not _is_crash(finished.crash, output):
        return Judged(verdict=Judgement.WRONG_ANSWER, message=_message(text, errors))
    if ended not in (ACCEPTS, GIVES_POINTS):
        return Judged(verdict=Judgement.CHECKER_ERROR, message=_why_undecided(finished))
    stated = _stated(first)
    claims = [] if stated is None else [stated]
    if ended == GIVES_POINTS:
        claims += _stated_to_stderr(errors)
    elif stated is None:
        claims = [1.0]
    message = _message(text if stated is None else rest, errors)
    # The smallest, so that text which a checker prints to the other stream does not add to what it gives.
    share = min((each for each in claims if 0 <= each <= 1), default=None)
    if share is None:
        why = f"The checker ended with exit code {ended}, but not with points from 0 to 1 in its first line"
        return Judged(verdict=Judgement.CHECKER_ERROR, message=f"{why}: {first[:MAX_QUOTED]}"[:MAX_MESSAGE])
    is_accepted = ended == ACCEPTS or share == 1
    verdict = Judgement.ACCEPTED if is_accepted else Judgement.WRONG_ANSWER
    return Judged(verdict=verdict, share=share, message=message)


def _is_crash(crash: bytes, output: bytes) -> bool:
    """Whether the runtime reported an error, rather than the checker printed such a report from the output.

    White space does not count: a checker may have printed the output word by word.

    >>> _is_crash(b"Node.js v18", b"42"), _is_crash(b"Node.js v18", b"Node.js\\nv18.1"), _is_crash(b"", b"")
    (True, False, False)
    """
    return b"".join(crash.split()) not in b"".join(output.split())


def _message(text: str, errors: str) -> str:
    # What a checker has to say is often in stderr: testlib writes there, and so does an interpreter that fails.
    return (text.strip() or errors.strip())[-MAX_MESSAGE:]


def _why_undecided(finished: RunFinished) -> str:
    why = f"The checker ended with {finished.verdict}, exit code {finished.exit_code}."
    if finished.compiled is not None and finished.verdict is RunVerdict.COMPILE_ERROR:
        why = f"The checker did not compile: {finished.compiled.stderr.decode(errors='replace').strip()}"
    elif finished.stderr:
        said = finished.stderr.decode(errors="replace").strip()
        why = f"{why} {said[len(why) + 1 - MAX_MESSAGE :]}"  # the end: there a traceback names the error
    return why[:MAX_MESSAGE]


def _stated(line: str) -> float | None:
    """The number of a line `points 0.5`, whatever it is.

    >>> _stated("points 0.5"), _stated("points 7"), _stated("points nan"), _stated("points were lost")
    (0.5, 7.0, nan, None)
    """
    word, _, rest = line.partition(" ")
    if word != "points":
        return None
    try:
        return float(rest)
    except ValueError:
        return None


def _stated_to_stderr(errors: str) -> list[float]:
    """As testlib writes it: `points 0.5`, and a message in the same line.

    >>> _stated_to_stderr("points 0.5 half of it\\npoints 1"), _stated_to_stderr("pointless")
    ([0.5], [])
    """
    stated = _stated(" ".join(errors.partition("\n")[0].split()[:2]))
    return [] if stated is None else [stated]


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
