"""How a run ended, as the JSON that callers see."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from jobyard.sandbox.protocol import CompileResult, File, RunFinished

# Of what is no text, so much is shown as if it were; all of it is there as base64.
READABLE_BYTES = 4096
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r")) + b"\x7f"
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> bytes:
    return _encode(value)


def run_result(finished: RunFinished) -> dict[str, Any]:
    """What was not valid UTF-8 is there twice: readable, and exact."""
    found: dict[str, Any] = {
        **_output("stdout", finished.stdout, is_cut=finished.stdout_truncated),
        **_output("stderr", finished.stderr, is_cut=finished.stderr_truncated),
        "exit_code": finished.exit_code,
        "execution_time_ms": round(finished.execution_time_ms, 3),
        "signal": finished.signal,
        "verdict": finished.verdict,
        "cpu_time_ms": None if finished.cpu_time_ms is None else round(finished.cpu_time_ms, 3),
        "memory_peak_bytes": finished.memory_peak_bytes,
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


def _output(name: str, data: bytes, *, is_cut: bool = False) -> dict[str, str]:
    text, is_exact = readable(data, is_cut=is_cut)
    if len(data) > READABLE_BYTES and is_binary(data, text):
        # As JSON it would be several times as long, for nobody to read.
        text, is_exact = readable(data[:READABLE_BYTES], is_cut=True)[0] + "…", False
    return {name: text} if is_exact else {name: text, f"{name}_base64": base64.b64encode(data).decode()}


def is_binary(data: bytes, text: str) -> bool:
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return 8 * controls > len(data) or len(text.encode()) > 2 * len(data)


def readable(data: bytes, *, is_cut: bool) -> tuple[str, bool]:
    """As text, and whether that is all of it. Where output was cut, half a character at its end is left out.

    >>> readable("hé".encode()[:2], is_cut=True), readable(b"h\\xff", is_cut=False)
    (('h', True), ('h\\ufffd', False))
    """
    try:
        return data.decode(), True
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":
            return data[: error.start].decode(), True
        whole = data[: -_half(data)] if is_cut and _half(data) else data
        return whole.decode(errors="replace"), False


def _half(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character that is not all there."""
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
