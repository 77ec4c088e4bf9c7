"""Why a port cannot be bound, and what to do, in sentences."""

from __future__ import annotations

import errno
import os
import socket

FIRST_UNPRIVILEGED_PORT = 1024


def bind_problem(error: OSError, port: int, flag: str) -> str:
    """
    >>> bind_problem(OSError(errno.EADDRINUSE, "…"), 8080, "--port")
    'it is in use. Stop the other process, or choose another port with --port.'
    >>> bind_problem(OSError(errno.EACCES, "…"), 80, "--port")
    'permission denied. Ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose another port with --port.'
    >>> bind_problem(OSError(errno.EADDRNOTAVAIL, "… (while attempting to bind on address …)"), 8080, "--port")
    'Cannot assign requested address.'
    """
    if error.errno == errno.EADDRINUSE:
        return f"it is in use. Stop the other process, or choose another port with {flag}."
    if error.errno == errno.EACCES and port < FIRST_UNPRIVILEGED_PORT:
        needs = f"Ports below {FIRST_UNPRIVILEGED_PORT} need root or CAP_NET_BIND_SERVICE."
        return f"permission denied. {needs} Choose another port with {flag}."
    if isinstance(error, socket.gaierror) or error.errno is None:
        return f"{error.strerror or error}."
    return f"{os.strerror(error.errno)}."  # the text of the error repeats the address
