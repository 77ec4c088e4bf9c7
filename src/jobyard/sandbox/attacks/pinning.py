"""Attacks that limits catch late: pages pinned by a pipe, large collected files, large programs."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import NO_MEMORY, Attack, Expected, Layer, with_syscall
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

LARGE = 15 << 20
COLLECTED = Expected(files={"large": b"x" * LARGE})
MAY_COMPILE = Expected(verdicts=(RunVerdict.OK, RunVerdict.COMPILE_ERROR))
NOT_PINNED = Expected(prints={"pin": "EPERM|ENOSYS|EACCES|MemoryError|EAGAIN|DONE 119"})
NOWHERE: tuple[Expected, ...] = ()

ATTACKS = (
    Attack(
        146,
        "huge pages pinned by a pipe",
        with_syscall("""\
import fcntl, time
HUGE = 2 << 20
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.vmsplice.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]

class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def pin():
    # One byte of each huge page goes into a pipe, which pins the whole page; the address space is released.
    reads, writes = os.pipe()
    try:
        fcntl.fcntl(writes, 1031, 1 << 20)
    except OSError:
        pass
    for number in range(120):
        area = libc.mmap(None, 2 * HUGE, 3, 0x22, -1, 0)
        if area in (None, 2**64 - 1):
            raise MemoryError
        page = (area + HUGE - 1) // HUGE * HUGE
        libc.madvise(page, HUGE, 14)
        ctypes.memset(page, 65, HUGE)
        piece = Piece(page + 8192, 1)
        if libc.vmsplice(writes, ctypes.byref(piece), 1, 2) != 1:
            raise OSError(ctypes.get_errno(), "vmsplice")
        libc.munmap(area, 2 * HUGE)
    return number

got = attempt("pin", pin)
if got.startswith("DONE"):
    # With huge pages disabled, the pipe pins small pages: less than a megabyte.
    print("pinned: ESCAPED" if libc.prctl(42, 0, 0, 0, 0) != 1 else "pinned: small pages")
"""),
        NO_MEMORY,
        tiers=dict.fromkeys(Tier, (NO_MEMORY, NOT_PINNED)),
        limits=Limits(time_seconds=5),
    ),
    Attack(
        147,
        "collect a large file, whole or not at all",
        f"open('large', 'wb').write(b'x' * {LARGE})\n",
        COLLECTED,
        tiers={**dict.fromkeys((Tier.A, Tier.B), (COLLECTED, Expected(files={}, notes=1))), Tier.C: NOWHERE},
        without={Layer.NAMESPACES: NOWHERE},
        collect=("large",),
        with_bystander=True,
    ),
    Attack(
        148,
        "C: a large program, whole or not at all",
        "char large[28 << 20] = {1};\nint main(void) { return large[5]; }\n",
        MAY_COMPILE,
        language="c",
        # The program may be larger than its folder.
        tiers=dict.fromkeys(
            (Tier.A, Tier.B), (MAY_COMPILE, Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), exit_code=125))
        ),
    ),
    Attack(
        150,
        "Node: exhaust descriptors",
        """\
const fs = require("fs");
let count = 0;
try { for (;;) { fs.openSync("/dev/null"); count++; } } catch (error) { console.log(`open: ${error.code}`); }
console.log(`count: ${count < 65 ? count : "ESCAPED"}`);
""",
        Expected(prints={"open": "EMFILE"}),
        language="javascript",
    ),
)
