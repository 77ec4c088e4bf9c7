"""Fake daemon with the real protocol: a "program" consists of lines such as `out hello`.

Also a process of its own: `python -m tests.sandbox.fake_daemon --socket PATH …`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.support import ROOT

from jobyard.sandbox.protocol import (
    ClientMessage,
    CompileResult,
    Fault,
    File,
    FrameDecoder,
    Language,
    Output,
    RunCancellation,
    RunFinished,
    RunRejected,
    RunRequest,
    RunVerdict,
    SandboxState,
    StateRequest,
    Tier,
    encode_frame,
)

STARTED = "the fake daemon is up"
_decode = msgspec.msgpack.Decoder(ClientMessage).decode
LANGUAGES = (
    Language(name="python", version="3.11.2", pool=2),
    Language(name="c", version="12.2", compiled=True),
)


class ProgramEnd(Exception):
    def __init__(self, verdict: RunVerdict, exit_code: int = 0, signal: int | None = None) -> None:
        self.verdict, self.exit_code, self.signal = verdict, exit_code, signal


class FakeRun:
    """One run: its lines, its output so far, and how it ends."""

    def __init__(self, run: RunRequest, send: Any) -> None:
        self.run = run
        self.written = {1: b"", 2: b""}
        self.cut = {1: False, 2: False}
        self.compiled: CompileResult | None = None
        self.files: list[File] = []
        self._send = send

    def write(self, fd: int, data: bytes) -> None:
        room = self.run.limits.output_bytes - len(self.written[fd])
        kept = data[:room]
        self.written[fd] += kept
        if self.run.stream and kept:
            self._send(Output(id=self.run.id, fd=fd, data=kept))
        if len(data) > room:
            self.cut[fd] = True
            raise ProgramEnd(RunVerdict.OUTPUT_LIMIT, 137, 9)

    async def step(self, word: str, rest: str) -> None:
        match word:
            case "out" | "err":
                self.write(1 if word == "out" else 2, rest.encode() + b"\n")
            case "bytes":
                self.write(1, bytes.fromhex(rest))
            case "cat":
                self.write(1, self.run.stdin)
            case "args":
                self.write(1, " ".join(self.run.args).encode())
            case "files":
                self.write(1, b"".join(file.name.encode() + b"=" + file.data for file in self.run.files))
            case "keep":
                self.files += [File(name=name, data=b"kept") for name in self.run.collect]
            case "sleep":
                await asyncio.sleep(float(rest))
            case "exit":
                raise ProgramEnd(RunVerdict.RUNTIME_ERROR if int(rest) else RunVerdict.OK, int(rest))
            case "die":
                raise ProgramEnd(RunVerdict.SIGNALED, 128 + int(rest), int(rest))
            case "compile":
                self.compiled = CompileResult(exit_code=int(rest), stdout=b"", stderr=b"", time_ms=1.0, cached=False)
                if int(rest):
                    raise ProgramEnd(RunVerdict.COMPILE_ERROR, int(rest))
            case "refuse":
                raise RuntimeError(rest)
            case _:
                raise ProgramEnd(RunVerdict.RUNTIME_ERROR, 1)

    async def execute(self) -> RunFinished | RunRejected:
        began = time.monotonic()
        ended = ProgramEnd(RunVerdict.OK)
        try:
            async with asyncio.timeout(self.run.limits.time_seconds):
                for line in self.run.source.decode().splitlines():
                    await self.step(*line.partition(" ")[::2])
        except TimeoutError:
            ended = ProgramEnd(RunVerdict.TIME_LIMIT, 137, 9)
        except ProgramEnd as said:
            ended = said
        except RuntimeError as refused:
            return RunRejected(id=self.run.id, fault=Fault(str(refused)), message="as requested")
        return RunFinished(
            id=self.run.id, verdict=ended.verdict, exit_code=ended.exit_code, signal=ended.signal,
            stdout=self.written[1], stderr=self.written[2], stdout_truncated=self.cut[1], stderr_truncated=self.cut[2],
            execution_time_ms=(time.monotonic() - began) * 1000, cpu_time_ms=1.0, memory_peak_bytes=1 << 20,
            memory_source="none", setup_ms=0.1, tier=Tier.A, compiled=self.compiled, files=tuple(self.files),
        )  # fmt: skip


class FakeDaemon:
    def __init__(self, path: str, *, slots: int = 4, state: SandboxState | None = None) -> None:
        self.path = path
        self.state = state or SandboxState(
            tier=Tier.A, languages=LANGUAGES, slots=slots, missing={"bash": "not installed"}
        )
        self.runs: list[RunRequest] = []
        self.cancelled = 0
        self.running = 0
        self.max_running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)
        Path(self.path).unlink(missing_ok=True)

    def change_state(self, state: SandboxState) -> None:
        self.state = state
        for writer in self._writers:
            writer.write(encode_frame(state))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        writer.write(encode_frame(self.state))
        frames, own = FrameDecoder(), {}
        try:
            while data := await reader.read(1 << 16):
                for each in frames.feed(data):
                    message = _decode(each)
                    if isinstance(message, RunRequest):
                        self.runs.append(message)
                        own[message.id] = asyncio.ensure_future(self._run(message, writer))
                        self._tasks.add(own[message.id])
                        own[message.id].add_done_callback(self._tasks.discard)
                    elif isinstance(message, RunCancellation) and message.id in own:
                        own[message.id].cancel()
                    elif isinstance(message, StateRequest):
                        writer.write(encode_frame(msgspec.structs.replace(self.state, id=message.id)))
        except ConnectionError:
            pass
        finally:
            for task in own.values():
                task.cancel()
            self._writers.discard(writer)
            writer.close()

    async def _run(self, run: RunRequest, writer: asyncio.StreamWriter) -> None:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            writer.write(encode_frame(await FakeRun(run, lambda said: writer.write(encode_frame(said))).execute()))
        except asyncio.CancelledError:
            self.cancelled += 1
            writer.write(encode_frame(RunRejected(id=run.id, fault=Fault.CANCELLED, message="cancelled")))
        finally:
            self.running -= 1


@asynccontextmanager
async def daemon(folder: Path, **options: Any) -> AsyncIterator[FakeDaemon]:
    fake = FakeDaemon(str(folder / "sandbox.sock"), **options)
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@contextmanager
def daemon_process(path: Path) -> Iterator[Path]:
    """The fake daemon as a process of its own, which accepts connections when the block begins."""
    words = [sys.executable, "-m", "tests.sandbox.fake_daemon", "--socket", str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        # The socket exists before anything listens on it; this line is written after.
        line = process.stderr.readline().decode()
        assert line.strip() == STARTED, line
        yield path
        process.stdin.close()


async def main(path: str, slots: int) -> None:
    fake = FakeDaemon(path, slots=slots)
    await fake.start()
    print(STARTED, file=sys.stderr, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, lambda: os.read(0, 1))
    await fake.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--slots", type=int, default=4)
    given, _ = parser.parse_known_args()
    asyncio.run(main(given.socket, given.slots))
