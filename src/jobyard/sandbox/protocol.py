"""What is said over the daemon's socket: frames of msgpack, each behind its length. Both sides read this file."""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

VERSION: Final = 1
MAX_FRAME_BYTES: Final = 64 << 20
_LENGTH = struct.Struct("!I")


class RunVerdict(enum.StrEnum):
    """How the program's own run ended; each of them is a completed job."""

    OK = "OK"
    RUNTIME_ERROR = "RUNTIME_ERROR"  # an exit code other than 0
    SIGNALED = "SIGNALED"
    TIME_LIMIT = "TIME_LIMIT"
    CPU_LIMIT = "CPU_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    COMPILE_ERROR = "COMPILE_ERROR"


class Fault(enum.StrEnum):
    """Why the platform could not run a program: not the program's doing, so it is tried again."""

    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    SPAWN_FAILED = "SPAWN_FAILED"
    ZYGOTE_LOST = "ZYGOTE_LOST"
    SUPERVISOR_LOST = "SUPERVISOR_LOST"  # said by the client: the connection ended
    INTERNAL = "INTERNAL"
    UNKNOWN_LANGUAGE = "UNKNOWN_LANGUAGE"  # a daemon elsewhere may have it
    CANCELLED = "CANCELLED"  # the answer to Cancel


class Tier(enum.StrEnum):
    """How well programs are held here, best first."""

    A = "A"  # namespaces made as root, memory and process limits by control groups
    B = "B"  # namespaces of an ordinary user
    C = "C"  # system call filter and Landlock: one process of Python, no folder to write to


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    time_seconds: float = 3.0  # on the wall clock
    cpu_seconds: float | None = None  # None: as much as the time allows
    memory_mb: int = 128
    processes: int = 32
    files_open: int = 64
    output_bytes: int = 64 << 10  # of stdout, and again of stderr
    disk_mb: int = 16
    disk_files: int = 1024


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # relative, below the program's folder
    data: bytes


# What the client says


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    id: int  # the client's own; answers carry it
    language: str
    source: bytes
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    limits: Limits = Limits()
    stream: bool = False  # output is told while it comes, and again in the end
    collect: tuple[str, ...] = ()  # files to bring back: names below the program's folder


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    id: int


class StateRequest(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """How is it? Answered by State."""

    id: int


# What the daemon says


class Language(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    compiled: bool = False
    pool: int = 0  # members kept warm


class SandboxState(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """Said once to everybody who connects (id 0), and whenever asked."""

    id: int = 0
    version: int = VERSION
    tier: Tier | None = None  # None: it refuses to run anything
    reason: str = ""  # why the tier is not better, or why it refuses
    languages: tuple[Language, ...] = ()
    missing: dict[str, str] = {}  # languages that did not pass their self-test, and why
    slots: int = 0
    running: int = 0
    idle: dict[str, int] = {}  # warm members by language
    runs: int = 0  # since the start
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
    exit_code: int  # 128 + the signal when one ended it
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    execution_time_ms: float  # from the code handed over to the program's end, monotonic
    cpu_time_ms: float | None
    memory_peak_bytes: int | None
    memory_source: str  # "cgroup", "rusage" or "none"
    setup_ms: float  # until a member could take the code
    tier: Tier
    compiled: CompileResult | None = None
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()  # what was asked for and left out, and why


class RunRejected(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    id: int
    fault: Fault
    message: str


ClientMessage = RunRequest | CancelRequest | StateRequest
DaemonMessage = SandboxState | Output | RunFinished | RunRejected

_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: ClientMessage | DaemonMessage) -> bytes:
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


class ProtocolError(Exception):
    """The other side does not speak this language."""


class FrameDecoder:
    """Cuts what arrives into frames."""

    def __init__(self, most: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._most = most

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        found: list[bytes] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._most:
                raise ProtocolError(f"a frame of {length} bytes; {self._most} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            found.append(bytes(memoryview(self._buffer)[_LENGTH.size : end]))
            del self._buffer[:end]
        return found
