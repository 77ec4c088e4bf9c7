"""What an attack is: a program, and what must be seen when it has run."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobyard.sandbox.protocol import File, Limits, RunFinished, RunRejected, RunVerdict, Tier

ESCAPED = "ESCAPED"  # a program prints it where it got what nobody may get; no tier has an excuse for it
DEFAULT = Limits()
BUSY_MS = 1000.0  # a busy machine ends a program later; how exact it is on a quiet one is measured elsewhere


class Layer(enum.StrEnum):
    """What can be left out, to see what the others hold without it."""

    SECCOMP = "seccomp"
    NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    verdicts: tuple[RunVerdict, ...] = (RunVerdict.OK,)
    prints: Mapping[str, str] = field(default_factory=dict)  # line `name: …` of stdout, whole, as a regular expression
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes | None = None  # exactly
    stdout_bytes: int | None = None  # how many, cut there
    stderr: str | None = None  # found in it, as a regular expression
    stderr_bytes: int | None = None
    in_ms: float | None = None  # longest that it may take; time limits are checked in any case
    files: Mapping[str, bytes] | None = None  # exactly these come back
    notes: int = 0  # at least so many things were left out, and said
    refused: bool = False  # the daemon does not run it at all

    def problems(self, seen: RunFinished | RunRejected, limits: Limits) -> list[str]:
        """Why this is not what was expected; nothing when it is."""
        if isinstance(seen, RunRejected):
            return [] if self.refused else [f"refused: {seen.fault} {seen.message}"]
        if self.refused:
            return [f"it ran: {seen.verdict}"]
        return [
            *self._of_verdict(seen),
            *self._of_output(seen),
            *self._of_time(seen, limits),
            *self._of_files(seen),
        ]

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
        found += [f"it says {line!r}" for line in text.splitlines() if ESCAPED in line]
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
        most = limits.time_seconds * 1000 + BUSY_MS
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
            return "refused"
        words = ["/".join(self.verdicts)]
        words += [f"exit {self.exit_code}"] if self.exit_code is not None else []
        words += [f"signal {self.signal}"] if self.signal is not None else []
        by_word: dict[str, list[str]] = {}
        for name, pattern in self.prints.items():
            by_word.setdefault(_in_words(pattern), []).append(name)
        words += [f"{' '.join(names)}: {word}" for word, names in by_word.items()]
        return ", ".join(words)


Expectation = tuple[Expected, ...]  # one of them is met; none of them: nothing is promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`program` may name things of the scene: @SECRET_FILE@, @PORT@ and others, filled in before it is sent."""

    number: int
    name: str
    program: str | bytes
    expected: Expected
    tiers: Mapping[Tier, Expectation] = field(default_factory=dict)  # where another outcome is right, or is too
    without: Mapping[Layer, Expectation] = field(default_factory=dict)  # the same with a layer left out
    language: str = "python"
    limits: Limits = DEFAULT
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    files: tuple[File, ...] | Callable[[], tuple[File, ...]] = ()  # large ones are made when they are wanted
    collect: tuple[str, ...] = ()
    with_bystander: bool = False  # a harmless program runs meanwhile and must not notice

    def expectation(self, tier: Tier, without: Layer | None = None) -> Expectation:
        usual = self.tiers.get(tier, (self.expected,))
        if without is None:
            return usual
        return self.without.get(without, usual)


def judge(expectation: Expectation, seen: RunFinished | RunRejected, limits: Limits) -> list[str]:
    """The problems by the reading that fits best; where nothing is promised there are none."""
    return min((each.problems(seen, limits) for each in expectation), key=len, default=[])


def _in_words(pattern: str) -> str:
    """
    >>> _in_words(f"{REFUSED}|ESRCH")
    'refused|ESRCH'
    """
    for word, way in (("refused", REFUSED), ("absent", ABSENT), ("unreached", UNREACHED)):
        pattern = pattern.replace(way, word)
    return pattern


def _tail(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:120] if lines else ""


# What many programs begin with. `attempt` prints what came of it in one word: DONE and the answer, or the error's name.
ATTEMPT = """\
import errno, os, sys

PARENT = os.getppid() or 1  # outside of its namespace it has no number

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
SYSCALL = (
    ATTEMPT
    + '''\
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
IS_ARM = os.uname().machine == "aarch64"

def syscall(number, on_arm, *given):
    """By its number on x86-64, and on 64-bit ARM; a negative one is not there."""
    number = on_arm if IS_ARM else number
    if number < 0:
        raise OSError(errno.ENOSYS, "not here")
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in given]
    got = libc.syscall(ctypes.c_long(number), *given)
    if got < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return got

'''
)

# Ways to say no.
REFUSED = "EPERM|EACCES|ENOSYS"
ABSENT = "ENOENT|EACCES|ENOTDIR"
UNREACHED = "ENETUNREACH|ECONNREFUSED|EADDRNOTAVAIL|ENETDOWN|EHOSTUNREACH"
SHORT = Limits(time_seconds=0.3)
ENDED = Expected(verdicts=(RunVerdict.TIME_LIMIT,))
NO_MEMORY = Expected(verdicts=(RunVerdict.MEMORY_LIMIT,))
MEMORY_ERROR = Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), stderr="MemoryError|ENOMEM|Cannot allocate|Errno 12")
NO_FORK = Expected(prints={"fork": REFUSED})
OUT_OF_MEMORY = {Tier.B: (NO_MEMORY, MEMORY_ERROR), Tier.C: (NO_MEMORY, MEMORY_ERROR)}
