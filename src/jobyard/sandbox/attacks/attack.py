"""The model of an attack: a program and the result that is expected of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from jobyard.sandbox.protocol import File, Limits, RunFinished, RunRejected, RunResponse, RunVerdict, Tier

ESCAPED = "ESCAPED"  # printed by a program that got what no tier allows
DEFAULT_LIMITS = Limits()
# A busy machine kills a program late; tests/sandbox/test_accuracy.py measures the accuracy.
SCHEDULING_SLACK_MS = 1000.0


class Layer(enum.StrEnum):
    """A layer that can be left out, to test the others without it."""

    SECCOMP = "seccomp"
    NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    verdicts: tuple[RunVerdict, ...] = (RunVerdict.OK,)
    prints: Mapping[str, str] = field(default_factory=dict)  # `name: …` lines of stdout, as regular expressions
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes | None = None  # exactly
    stdout_bytes: int | None = None  # length, truncated there
    stderr: str | None = None  # regular expression to find in it
    stderr_bytes: int | None = None
    in_ms: float | None = None  # maximum duration, besides the time limit
    files: Mapping[str, bytes] | None = None  # exactly these are collected
    notes: int = 0  # minimum number of notes about files left out
    refused: bool = False  # the daemon rejects the run

    @classmethod
    def each(cls, pattern: str, *names: str) -> Expected:
        """Expect the same to be printed for all of these names."""
        return cls(prints=dict.fromkeys(names, pattern))

    def problems(self, seen: RunResponse, limits: Limits) -> list[str]:
        if isinstance(seen, RunRejected):
            return [] if self.refused else [f"rejected: {seen.fault} {seen.message}"]
        if self.refused:
            return [f"it ran: {seen.verdict}"]
        return [*self._of_verdict(seen), *self._of_output(seen), *self._of_time(seen, limits), *self._of_files(seen)]

    def _of_verdict(self, seen: RunFinished) -> list[str]:
        found = []
        if seen.verdict not in self.verdicts:
            found.append(f"verdict {seen.verdict} (exit code {seen.exit_code}): {_tail(seen.stderr)}".rstrip(": "))
        if self.exit_code is not None and seen.exit_code != self.exit_code:
            found.append(f"exit code {seen.exit_code}")
        if self.signal is not None and seen.signal != self.signal:
            found.append(f"signal {seen.signal}")
        return found

    def _of_output(self, seen: RunFinished) -> list[str]:
        found = []
        text = seen.stdout.decode("utf-8", "replace")
        found += [f"it printed {line!r}" for line in text.splitlines() if ESCAPED in line]
        lines = dict(line.partition(": ")[::2] for line in text.splitlines())
        for name, pattern in self.prints.items():
            if not re.fullmatch(pattern, lines.get(name, "")):
                found.append(f"{name}: {lines.get(name, 'nothing')!r}")
        if self.stdout is not None and seen.stdout != self.stdout:
            found.append(f"stdout {seen.stdout[:60]!r}")
        if self.stderr is not None and not re.search(self.stderr, seen.stderr.decode("utf-8", "replace")):
            found.append(f"stderr {_tail(seen.stderr)!r}")
        for name, wanted, data, cut in (
            ("stdout", self.stdout_bytes, seen.stdout, seen.stdout_truncated),
            ("stderr", self.stderr_bytes, seen.stderr, seen.stderr_truncated),
        ):
            if wanted is not None and (len(data) != wanted or not cut):
                found.append(f"{name} of {len(data)} bytes, {'' if cut else 'not '}truncated")
        return found

    def _of_time(self, seen: RunFinished, limits: Limits) -> list[str]:
        most = limits.time_seconds * 1000 + SCHEDULING_SLACK_MS
        if self.in_ms is not None:
            most = min(most, self.in_ms)
        return [f"took {seen.execution_time_ms:.0f} ms"] if seen.execution_time_ms > most else []

    def _of_files(self, seen: RunFinished) -> list[str]:
        found = []
        brought = {file.name: file.data for file in seen.files}
        if self.files is not None and brought != dict(self.files):
            found.append(f"files {sorted(brought)}")
        if len(seen.notes) < self.notes:
            found.append(f"notes {list(seen.notes)}")
        return found

    def __str__(self) -> str:
        if self.refused:
            return "rejected"
        words = ["/".join(self.verdicts)]
        words += [f"exit {self.exit_code}"] if self.exit_code is not None else []
        words += [f"signal {self.signal}"] if self.signal is not None else []
        by_word: dict[str, list[str]] = {}
        for name, pattern in self.prints.items():
            by_word.setdefault(_abbreviate(pattern), []).append(name)
        words += [f"{' '.join(names)}: {word}" for word, names in by_word.items()]
        return ", ".join(words)


Expectation = tuple[Expected, ...]  # alternatives; empty: any result is accepted


@dataclass(frozen=True, slots=True)
class Attack:
    """`program` may contain placeholders of the honeypot, such as @SECRET_FILE@ and @PORT@."""

    number: int
    name: str
    program: str | bytes
    expected: Expected
    _: KW_ONLY
    tiers: Mapping[Tier, Expectation] = field(default_factory=dict)  # where other results are expected
    without: Mapping[Layer, Expectation] = field(default_factory=dict)  # the same with a layer left out
    with_unix_sockets: Expectation = ()  # where programs may create them; empty: as usual
    needs_unix_sockets: bool = False
    with_tcp: Expectation = ()  # where programs may use TCP; empty: as usual
    needs_tcp: bool = False
    language: str = "python"
    limits: Limits = DEFAULT_LIMITS
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    files: tuple[File, ...] | Callable[[], tuple[File, ...]] = ()  # large ones are created on demand
    collect: tuple[str, ...] = ()
    with_bystander: bool = False  # a harmless program runs at the same time and must not be affected

    def expectation(
        self, tier: Tier, without: Layer | None = None, *, has_unix_sockets: bool = False, has_tcp: bool = False
    ) -> Expectation:
        usual = self.tiers.get(tier, (self.expected,))
        if has_unix_sockets:
            usual = self.with_unix_sockets or usual
        if has_tcp:
            usual = self.with_tcp or usual
        if without is None:
            return usual
        return self.without.get(without, usual)


def judge(expectation: Expectation, seen: RunResponse, limits: Limits) -> list[str]:
    """List the problems of the alternative that fits best."""
    return min((each.problems(seen, limits) for each in expectation), key=len, default=[])


def _abbreviate(pattern: str) -> str:
    """
    >>> _abbreviate(f"{REFUSED}|ESRCH")
    'refused|ESRCH'
    """
    for word, way in (("refused", REFUSED), ("absent", ABSENT), ("unreached", UNREACHED)):
        pattern = pattern.replace(way, word)
    return pattern


def _tail(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:120] if lines else ""


# Prelude of many programs. `attempt` prints the result of a call: DONE and its value, or the name of the error.
ATTEMPT = """\
import errno, os, sys

PARENT = os.getppid() or 1  # a parent outside of the namespace has no pid

def attempt(name, function, *given):
    try:
        got = function(*given)
    except OSError as error:
        got = errno.errorcode.get(error.errno, str(error))
    except (ValueError, MemoryError, RuntimeError, ImportError, AttributeError) as error:
        got = type(error).__name__
    else:
        got = f"DONE {got}"
    print(f"{name}: {got}", flush=True)
    return got

"""


def with_attempt(program: str) -> str:
    return ATTEMPT + program


SYSCALL = with_attempt('''\
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
IS_ARM = os.uname().machine == "aarch64"

def syscall(number, on_arm, *given):
    """Call by number on x86-64 and on 64-bit ARM; negative: does not exist there."""
    number = on_arm if IS_ARM else number
    if number < 0:
        raise OSError(errno.ENOSYS, "not here")
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in given]
    got = libc.syscall(ctypes.c_long(number), *given)
    if got < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return got

''')


def with_syscall(program: str) -> str:
    return SYSCALL + program


# Common results of contained attempts.
REFUSED = "EPERM|EACCES|ENOSYS"
ABSENT = "ENOENT|EACCES|ENOTDIR"
UNREACHED = "ENETUNREACH|ECONNREFUSED|EADDRNOTAVAIL|ENETDOWN|EHOSTUNREACH"
SHORT = Limits(time_seconds=0.3)
TIMED_OUT = Expected(verdicts=(RunVerdict.TIME_LIMIT,))
NO_MEMORY = Expected(verdicts=(RunVerdict.MEMORY_LIMIT,))
NO_FORK = Expected(prints={"fork": REFUSED})
