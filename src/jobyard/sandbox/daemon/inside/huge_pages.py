"""The interpreter's code in huge pages: a copy of the zygote has it at once, and lets go of it at once.

Otherwise every member finds its code one fault at a time, and its end visits each of a thousand pages: a tenth of
what it costs.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_HUGE = 2 << 20
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x22
_COLLAPSE = 25  # into huge pages, now; since Linux 6.1
_MOVE_TO = 1 | 2  # MREMAP_MAYMOVE, MREMAP_FIXED

_libc = ctypes.PyDLL(None, use_errno=True)
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t
_libc.mmap.argtypes = (_pointer, _size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mremap.argtypes = (_pointer, _size, _size, ctypes.c_int, _pointer)
_libc.munmap.argtypes = (_pointer, _size)
_libc.madvise.argtypes = _libc.mprotect.argtypes = (_pointer, _size, ctypes.c_int)
_libc.mmap.restype = _libc.mremap.restype = _pointer


def tidy() -> None:
    """Before the first copy is made."""
    _libc.malloc_trim(0)
    first, size = _code(Path("/proc/self/maps").read_text(), os.path.realpath("/proc/self/exe"))
    if size:
        _hold(first, size)


def _hold(first: int, size: int) -> None:
    made = _libc.mmap(None, size + _HUGE, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if made in (None, ctypes.c_void_p(-1).value):
        return
    place = -(-made // _HUGE) * _HUGE
    # What lies around it goes now: once it has moved, its old place may be anybody's.
    for begin, end in ((made, place), (place + size, made + size + _HUGE)):
        if end > begin:
            _libc.munmap(begin, end - begin)
    ctypes.memmove(place, first, size)
    if _libc.madvise(place, size, _COLLAPSE) == 0 and _libc.mprotect(place, size, _READ | _EXECUTE) == 0:
        _libc.mremap(place, size, size, _MOVE_TO, first)  # in one step, for it is what runs us
    else:
        _libc.munmap(place, size)


def _code(maps: str, own: str) -> tuple[int, int]:
    """Where and how much: what is mapped of the interpreter's file and never written to, as far as huge pages go."""
    first = last = 0
    for line in maps.splitlines():
        place, access, *_, path = line.split(None, 5) if "/" in line else (line, "", "")
        if path == own and access[1] == "-":
            begin, end = (int(word, 16) for word in place.split("-"))
            first, last = (first if begin == last else begin), end
    first = -(-first // _HUGE) * _HUGE
    return first, max(0, last // _HUGE * _HUGE - first)
