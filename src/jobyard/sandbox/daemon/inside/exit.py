"""Execution and exit of a Python program: what an interpreter does at exit, except for freeing all objects.

A regular exit would visit every object that came from the zygote and so copy its memory, at ten times the cost.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import types
from typing import Any


def run(code: types.CodeType | None, names: dict[str, Any]) -> None:
    status = 1
    try:
        if code is not None:
            exec(code, names)
            status = 0
    except SystemExit as error:
        status = _exit_code(error)
    except BaseException as error:
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        _show(error)
    _exit(status, names)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    try:
        sys.stderr.write(f"{error.code}\n")
    except Exception:
        return 1
    return 1


def _show(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        pass
    except BaseException as hook_error:
        sys.__excepthook__(type(hook_error), hook_error, hook_error.__traceback__)
    error.__traceback__ = None


def _exit(status: int, names: dict[str, Any]) -> None:
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    # Dropping the globals closes files that the program left open, which flushes them.
    for private in (True, False):
        for name in [name for name in names if name.startswith("_") == private and name != "__builtins__"]:
            names[name] = None
    gc.collect()
    status = _flush(status)
    if status == 130:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _flush(status: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:
            if stream is sys.stdout:
                status = 120
    return status
