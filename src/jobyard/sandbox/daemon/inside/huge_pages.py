"""Remaps the interpreter's code to huge pages, so that clones of the zygote map and unmap it in a few steps.

Otherwise each box takes a page fault per page of code and visits a thousand pages at exit: a tenth of its cost.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_HUGE = 2 << 20
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x22
_COLLAPSE = 25  # MADV_COLLAPSE, since Linux 6.1
_MOVE_TO = 1 | 2  # MREMAP_MAYMOVE, MREMAP_FIXED

_libc = ctypes.PyDLL(None, use_errno=True)
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t
_libc.mmap.argtypes = (_pointer, _size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mremap.argtypes = (_pointer, _size, _size, ctypes.c_int, _pointer)
_libc.munmap.argtypes = (_pointer, _size)
_libc.madvise.argtypes = _libc.mprotect.argtypes = (_pointer, _size, ctypes.c_int)
_libc.mmap.restype = _libc.mremap.restype = _pointer


def remap_code() -> None:
    """Remap the code; call it before the first clone."""
    _libc.malloc_trim(0)
    first, size = _find_code(Path("/proc/self/maps").read_text(), os.path.realpath("/proc/self/exe"))
    if size:
        _remap(first, size)


def _remap(first: int, size: int) -> None:
    area = _libc.mmap(None, size + _HUGE, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if area in (None, ctypes.c_void_p(-1).value):
        return
    address = -(-area // _HUGE) * _HUGE
    # Unmap the surroundings now: after the move, other memory may be mapped there.
    for begin, end in ((area, address), (address + size, area + size + _HUGE)):
        if end > begin:
            _libc.munmap(begin, end - begin)
    ctypes.memmove(address, first, size)
    if _libc.madvise(address, size, _COLLAPSE) == 0 and _libc.mprotect(address, size, _READ | _EXECUTE) == 0:
        _libc.mremap(address, size, size, _MOVE_TO, first)  # in one step, because it is the code being executed
    else:
        _libc.munmap(address, size)


def _find_code(maps: str, own: str) -> tuple[int, int]:
    """Address and size of the read-only mappings of the interpreter's file, rounded to huge pages."""
    first = last = 0
    for line in maps.splitlines():
        address, access, *_, path = line.split(None, 5) if "/" in line else (line, "", "")
        if path == own and access[1] == "-":
            begin, end = (int(word, 16) for word in address.split("-"))
            first, last = (first if begin == last else begin), end
    first = -(-first // _HUGE) * _HUGE
    return first, max(0, last // _HUGE * _HUGE - first)
