"""The last step of a box: already confined, the process reads its code from a pipe and becomes the program."""

from __future__ import annotations

import _random
import _signal
import builtins
import contextlib
import gc
import io
import marshal
import os
import random
import resource
import signal
import sys
import threading
import types
from typing import Any, NamedTuple

from jobyard.sandbox.daemon.inside import protocol as wire
from jobyard.sandbox.daemon.inside import tracebacks

_MARSHAL = 2  # plain values only, in a format all versions share
_SAMPLE = marshal.dumps({"files": [["main.py", 1, 0o644]], "limits": {"cpu": 1}}, _MARSHAL)
_REHEARSALS = (
    20  # the interpreter specializes hot code in place: done in the zygote, the pages are not copied in every box
)
_LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "files_open": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "file_bytes": resource.RLIMIT_FSIZE,
    "address_space": resource.RLIMIT_AS,
}


class CompiledProgram(NamedTuple):
    """A Python program ready to execute; no code if compiling failed, which has been reported on stderr."""

    code: types.CodeType | None
    names: dict[str, Any]


_main = types.ModuleType("__main__")
_generator: _random.Random = random._inst


def prepare_python() -> None:
    """Set up what a fresh interpreter has; called once, by the zygote."""
    reading, writing = os.pipe()  # streams inspect their descriptor when created, and a program's are pipes
    for target, source in ((0, reading), (1, writing), (2, writing)):
        os.dup2(source, target)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape")
    # Line-buffered, so that output before a timeout is not lost in a buffer.
    sys.stdout = _writer(1, "surrogateescape")
    sys.stderr = _writer(2, "backslashreplace")
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.close(reading)
    os.close(writing)
    _main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = _main
    sys.excepthook = sys.__excepthook__ = tracebacks.show
    for _ in range(_REHEARSALS):
        _rehearse()


def renew(rehearse: int, has_folder: bool) -> types.ModuleType:
    """Renew what must differ between boxes."""
    _signal.signal(2, _signal.default_int_handler)
    _random.Random.seed(_generator)  # os.fork() would have done this and the next line
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    if rehearse:
        _rehearse()
        if has_folder:
            _write("main", 0o644, b"")
            os.unlink("main")
    return _main


def _rehearse() -> None:
    """Do once what every run does, so that the pages it writes to are copied before a request waits for them."""
    marshal.loads(_SAMPLE)  # noqa: S302 a constant
    stream = io.StringIO()
    exec(compile(b"print(1)", "", "exec", dont_inherit=True), {"print": lambda value: print(value, file=stream)})
    sys.stdout.flush()
    gc.collect()


def _writer(descriptor: int, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, line_buffering=True)


def receive(pipe: int, main: types.ModuleType | None, base_bytes: int) -> CompiledProgram:
    """Wait for the code; a warm box waits here."""
    (length,) = wire.CODE_HEAD.unpack(_read_exactly(pipe, wire.CODE_HEAD.size))
    head = marshal.loads(_read_exactly(pipe, length))  # noqa: S302 written by the daemon
    files = [(name, mode, _read_exactly(pipe, size)) for name, size, mode in head["files"]]
    source = _read_exactly(pipe, head["source"]) if "source" in head else b""
    os.close(pipe)
    for name, mode, data in files:
        _write(name, mode, data)
    if main is not None and head["has_folder"]:
        _write(head["file"], 0o644, source)
    if "address_space" in head["limits"]:
        head["limits"]["address_space"] += base_bytes  # in use before the program starts
    for name, value in head["limits"].items():
        resource.setrlimit(_LIMITS[name], (value, value))
    if head.get("merge_stderr"):
        os.dup2(1, 2)
    if main is None:
        _execute(head["argv"], head["env"])
    assert main is not None
    return _python(main, head, source)


def _python(main: types.ModuleType, head: dict[str, Any], source: bytes) -> CompiledProgram:
    path = f"{wire.PROGRAM_FOLDER}/{head['file']}"
    sys.argv = [path, *head["args"]]
    sys.path.insert(0, os.path.dirname(path))
    main.__file__ = path
    tracebacks.remember(path, source)
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except BaseException as error:
        tracebacks.show(type(error), error, None)
        code = None
    return CompiledProgram(code, main.__dict__)


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    for number in (1, 2, 3, 13, 25):  # HUP INT QUIT PIPE XFSZ: the defaults that a shell starts programs with
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(126)


def _write(name: str, mode: int, data: bytes) -> None:
    folder, _, _ = name.rpartition("/")
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        done = os.write(descriptor, data)
        while done < len(data):
            done += os.write(descriptor, memoryview(data)[done:])
        os.close(descriptor)
    except OSError as error:
        os.write(2, f"{name}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(125)


def _read_exactly(descriptor: int, size: int) -> bytes:
    first = os.read(descriptor, size) if size else b""
    if len(first) == size:
        return first
    data = bytearray(first)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            os._exit(0)  # the daemon closed the pipe: this box is not needed any more
        data += more
    return bytes(data)
