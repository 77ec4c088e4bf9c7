"""Results of runs as the JSON that callers receive."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from jobyard.sandbox.protocol import CompileResult, File, RunFinished

# Binary output is shown as text up to this length; base64 holds all of it.
PREVIEW_BYTES = 4096
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r")) + b"\x7f"
as_json = msgspec.json.Encoder().encode


def run_result(finished: RunFinished) -> dict[str, Any]:
    """Output that is not valid UTF-8 appears twice: as lossy text and as base64."""
    found: dict[str, Any] = {
        **_output("stdout", finished.stdout, is_cut=finished.stdout_truncated),
        **_output("stderr", finished.stderr, is_cut=finished.stderr_truncated),
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "verdict": finished.verdict,
        **figures(finished),
        "memory_source": finished.memory_source,
        "setup_ms": round(finished.setup_ms, 3),
        "truncated": {"stdout": finished.stdout_truncated, "stderr": finished.stderr_truncated},
        "tier": finished.tier,
    }
    if finished.compiled is not None:
        found["compile"] = _compiled(finished.compiled)
    if finished.files:
        found["files"] = [_file(file) for file in finished.files]
    if finished.notes:
        found["notes"] = finished.notes
    return found


def figures(finished: RunFinished) -> dict[str, Any]:
    return {
        "execution_time_ms": round(finished.execution_time_ms, 3),
        "cpu_time_ms": None if finished.cpu_time_ms is None else round(finished.cpu_time_ms, 3),
        "memory_peak_bytes": finished.memory_peak_bytes,
    }


def _output(name: str, data: bytes, *, is_cut: bool = False) -> dict[str, str]:
    text, is_exact = decode_lossy(data, is_cut=is_cut)
    if len(data) > PREVIEW_BYTES and is_binary(data, text):
        # Escaped as JSON, binary data would be several times as long and still unreadable.
        text, is_exact = decode_lossy(data[:PREVIEW_BYTES], is_cut=True)[0] + "…", False
    return {name: text} if is_exact else {name: text, f"{name}_base64": base64.b64encode(data).decode()}


def is_binary(data: bytes, text: str) -> bool:
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return 8 * controls > len(data) or len(text.encode()) > 2 * len(data)


def decode_lossy(data: bytes, *, is_cut: bool) -> tuple[str, bool]:
    """Decode as text; also return whether the text is exact. A character cut in half at the end is dropped.

    >>> decode_lossy("hé".encode()[:2], is_cut=True), decode_lossy(b"h\\xff", is_cut=False)
    (('h', True), ('h\\ufffd', False))
    """
    try:
        return data.decode(), True
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":
            return data[: error.start].decode(), True
        whole = data[: -_incomplete_bytes(data)] if is_cut and _incomplete_bytes(data) else data
        return whole.decode(errors="replace"), False


def _incomplete_bytes(data: bytes) -> int:
    """Number of bytes at the end that start an incomplete character."""
    for length in range(1, min(4, len(data) + 1)):
        first = data[-length]
        if first & 0xC0 == 0x80:
            continue
        needs = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
        return length if length < needs else 0
    return 0


def _compiled(compiled: CompileResult) -> dict[str, Any]:
    return {
        **_output("stdout", compiled.stdout),
        **_output("stderr", compiled.stderr),
        "exit_code": compiled.exit_code,
        "time_ms": round(compiled.time_ms, 3),
    }


def _file(file: File) -> dict[str, Any]:
    return {"name": file.name, "size": len(file.data), **_output("content", file.data)}
