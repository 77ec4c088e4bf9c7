"""Protocol between the sandbox daemon and its clients: length-prefixed msgpack frames over a Unix socket."""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

VERSION: Final = 2
MAX_FRAME_BYTES: Final = 64 << 20
_LENGTH = struct.Struct("!I")


class RunVerdict(enum.StrEnum):
    """How a run ended. Every verdict belongs to a completed job."""

    OK = "OK"
    RUNTIME_ERROR = "RUNTIME_ERROR"  # an exit code other than 0
    SIGNALED = "SIGNALED"
    TIME_LIMIT = "TIME_LIMIT"
    CPU_LIMIT = "CPU_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    COMPILE_ERROR = "COMPILE_ERROR"


class Fault(enum.StrEnum):
    """Why the platform could not run a program. The program is not to blame, so the job is retried."""

    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    SPAWN_FAILED = "SPAWN_FAILED"
    ZYGOTE_LOST = "ZYGOTE_LOST"
    SUPERVISOR_LOST = "SUPERVISOR_LOST"  # set by the client: the connection to the daemon ended
    INTERNAL = "INTERNAL"
    UNKNOWN_LANGUAGE = "UNKNOWN_LANGUAGE"  # another daemon may offer it
    UNSUPPORTED = "UNSUPPORTED"  # this tier cannot do what was requested; another daemon may
    CANCELLED = "CANCELLED"  # the response to RunCancellation


class Tier(enum.StrEnum):
    """Isolation level, strongest first."""

    A = "A"  # namespaces created as root, memory and process limits by cgroups
    B = "B"  # namespaces of an unprivileged user
    C = "C"  # seccomp and Landlock: one Python process, no writable folder


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    time_seconds: float = 3.0  # wall clock
    cpu_seconds: float | None = None  # None: limited by time_seconds only
    memory_mb: int = 128
    processes: int = 32
    files_open: int = 64
    output_bytes: int = 64 << 10  # for stdout and stderr each
    disk_mb: int = 16
    disk_files: int = 1024


class CompileLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a compiler; None: as in the definition of the language."""

    time_seconds: float | None = None
    memory_mb: int | None = None


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # relative to the program's folder
    data: bytes


# Client to daemon


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    id: int  # chosen by the client; responses carry it
    language: str
    source: bytes
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    limits: Limits = Limits()
    stream: bool = False  # send output while the program runs, and all of it again in RunFinished
    collect: tuple[str, ...] = ()  # files to return, by name below the program's folder
    scope: str = ""  # builds are reused within it only: a fast one tells that the same source was compiled before
    merge_stderr: bool = False  # stderr goes to stdout, in the order in which the program writes
    interactive: bool = False  # stdin stays open for RunInput, after what `stdin` holds
    compile_options: tuple[str, ...] = ()  # of those that the language allows
    compile_limits: CompileLimits = CompileLimits()


class RunCancellation(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    id: int


class RunInput(msgspec.Struct, frozen=True, kw_only=True, tag="input"):
    """More standard input of an interactive run. A run that has ended ignores it."""

    id: int
    data: bytes = b""
    end: bool = False  # close standard input after this


class RunSignal(msgspec.Struct, frozen=True, kw_only=True, tag="signal"):
    """A signal to the process of the program. A run that has ended ignores it."""

    id: int
    number: int


class StateRequest(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """Answered by SandboxState."""

    id: int


# Daemon to client


class Language(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    compiled: bool = False
    pool: int = 0  # size of the warm pool
    extensions: tuple[str, ...] = ()  # of source files, with the dot
    own_files: tuple[str, ...] = ()  # names in the program's folder that the language uses itself
    compile_options: tuple[str, ...] = ()  # allowed in a request; a final * stands for letters, digits and _=.+-
    max_compile_seconds: float | None = None  # the most that a request may set; None: it has no compiler
    max_compile_memory_mb: int | None = None
    example: str = ""  # a program that prints a greeting


# What the kernel can keep for one TCP connection, beside every counter: decision 18 has the measurement.
TCP_CONNECTION_MB: Final = 9


class SandboxState(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """Sent to every new connection (id 0), and in response to StateRequest."""

    id: int = 0
    version: int = VERSION
    tier: Tier | None = None  # None: the daemon rejects every run
    reason: str = ""  # why the tier is not better, or why runs are rejected
    languages: tuple[Language, ...] = ()
    missing: dict[str, str] = {}  # languages that failed their self-test, with the reason
    checking: tuple[str, ...] = ()  # languages whose self-test has not ended yet; their runs wait for it
    unix_sockets: bool = False  # whether programs may create Unix stream sockets
    why_no_unix_sockets: str = ""  # why not, although the operator has allowed them
    tcp_sockets: int = 0  # how many sockets a program may have when it connects over TCP; 0: it has no TCP
    why_no_tcp: str = ""  # why not, although the operator has allowed it
    slots: int = 0
    running: int = 0
    idle: dict[str, int] = {}  # warm boxes by language
    runs: int = 0  # since the daemon started
    faults: int = 0


class Output(msgspec.Struct, frozen=True, kw_only=True, tag="output"):
    id: int
    fd: int  # 1 or 2
    data: bytes


class CompileResult(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: bytes
    stderr: bytes
    time_ms: float
    cached: bool


class RunFinished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    id: int
    verdict: RunVerdict
    exit_code: int  # 128 + signal when a signal ended the program
    signal: int | None = None
    crash: bytes = b""  # from stderr: what the runtime prints when it ends a program for an error not handled
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    execution_time_ms: float = 0.0  # from sending the code to the program's end, monotonic
    cpu_time_ms: float | None = None
    memory_peak_bytes: int | None = None
    memory_source: str = "none"  # or "cgroup", "rusage"
    setup_ms: float = 0.0  # until a box could take the code
    tier: Tier
    compiled: CompileResult | None = None
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()  # what was requested but left out, with the reason


class RunRejected(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The platform did not run the program, or lost it."""

    id: int
    fault: Fault
    message: str
    may_have_run: bool = True  # False: no line of the program was executed


_OPTION_REST = re.compile(r"[A-Za-z0-9_=.+-]*")


def option_matches(option: str, allowed: str) -> bool:
    """
    >>> [option_matches(each, "-D*") for each in ("-DN=3", "-D", "-DX=/etc", "-O2")]
    [True, True, False, False]
    >>> option_matches("-O2", "-O2"), option_matches("-O2 ", "-O2"), option_matches("@file", "-O2")
    (True, False, False)
    """
    if not allowed.endswith("*"):
        return option == allowed
    start = allowed[:-1]
    return option.startswith(start) and _OPTION_REST.fullmatch(option[len(start) :]) is not None


RunResponse = RunFinished | RunRejected
ClientMessage = RunRequest | RunCancellation | RunInput | RunSignal | StateRequest
DaemonMessage = SandboxState | Output | RunFinished | RunRejected

_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: ClientMessage | DaemonMessage) -> bytes:
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class ProtocolError(Exception):
    """The peer sent something that this version of the protocol does not allow."""


def frame_decoder(message_type: Any) -> Callable[[bytes], Any]:
    """Return a function that decodes a frame. It raises ProtocolError."""
    decode = msgspec.msgpack.Decoder(message_type).decode

    def checked(frame: bytes) -> Any:
        try:
            return decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(str(error)) from error

    return checked


class FrameDecoder:
    """Splits a byte stream into frames."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames: list[bytes] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._max_bytes:
                raise ProtocolError(f"a frame of {length} bytes; at most {self._max_bytes} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(memoryview(self._buffer)[_LENGTH.size : end]))
            del self._buffer[:end]
        return frames
