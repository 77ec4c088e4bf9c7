"""Attacks on resource limits: processes, memory, disk, descriptors."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import (
    NO_FORK,
    NO_MEMORY,
    REFUSED,
    SHORT,
    TIMED_OUT,
    Attack,
    Expected,
    Layer,
    with_attempt,
    with_syscall,
)
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

MEMORY_ERROR = Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), stderr="MemoryError|ENOMEM|Cannot allocate|Errno 12")
OUT_OF_MEMORY = {Tier.B: (NO_MEMORY, MEMORY_ERROR), Tier.C: (NO_MEMORY, MEMORY_ERROR)}
NO_FOLDER = Expected(prints={"fill": f"{REFUSED}|EROFS|ENOENT"})
FORKLESS = {Layer.NAMESPACES: (NO_FORK,)}  # without a namespace to contain them, children are not allowed
A_FEW = "[1-9]|[12][0-9]|3[012]"

ATTACKS = (
    Attack(
        1,
        "fork bomb",
        """\
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        TIMED_OUT,
        limits=SHORT,
        with_bystander=True,
    ),
    Attack(
        2,
        "thread bomb",
        with_attempt("""\
import threading, time
count = 0
try:
    for _ in range(2000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        count += 1
except (RuntimeError, MemoryError, OSError):
    pass
print(f"threads: {count if count < 500 else 'ESCAPED'}", flush=True)
os._exit(0)
"""),
        Expected(prints={"threads": A_FEW}),
        with_bystander=True,
        tiers={Tier.C: (Expected(prints={"threads": "[0-9]{1,3}"}),)},  # limited by the address space
    ),
    Attack(
        3,
        "memory bomb",
        "kept = []\nwhile True:\n    kept.append(bytearray(b'x') * (8 << 20))\n",
        NO_MEMORY,
        tiers=OUT_OF_MEMORY,
        with_bystander=True,
    ),
    Attack(
        4,
        "map 1 GB and touch it",
        """\
import mmap
area = mmap.mmap(-1, 1 << 30)
for place in range(0, 1 << 30, 4096):
    area[place] = 1
""",
        NO_MEMORY,
        tiers=OUT_OF_MEMORY,
    ),
    Attack(
        5,
        "fill the disk",
        with_attempt("""\
def fill():
    global total
    for number in range(64):
        with open(f"fill-{number}", "wb", buffering=0) as file:
            while True:
                try:
                    total += file.write(bytes(1 << 20))
                except OSError as error:
                    if error.errno != errno.EFBIG or total > 64 << 20:
                        raise
                    break

total = 0
attempt("fill", fill)
print(f"total: {'held' if total <= 17 << 20 else 'ESCAPED'}")
"""),
        Expected(prints={"fill": "ENOSPC|EFBIG|EDQUOT", "total": "held"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        6,
        "fill /dev/shm",
        with_attempt("""\
total = 0
def fill():
    global total
    with open("/dev/shm/jobyard-attack", "wb", buffering=0) as file:
        while total < 64 << 20:
            total += file.write(bytes(1 << 20))

attempt("fill", fill)
print(f"total: {'held' if total <= 17 << 20 else 'ESCAPED'}")
"""),
        Expected(prints={"fill": f"ENOSPC|EFBIG|ENOENT|{REFUSED}|EROFS", "total": "held"}),
    ),
    Attack(
        7,
        "200 MB of System V shared memory",
        with_syscall("""\
area = attempt("shmget", syscall, 29, 194, 0, 200 << 20, 0o1600)
if area.startswith("DONE"):
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(int(area[5:]), None, 0)
    ctypes.memset(place, 1, 200 << 20)
    print("touched: ESCAPED")
"""),
        Expected(prints={"shmget": REFUSED}),
        without={Layer.SECCOMP: (NO_MEMORY, Expected(verdicts=(RunVerdict.SIGNALED,)))},
    ),
    Attack(
        8,
        "fill a memfd",
        with_attempt("""\
total = 0
def fill():
    global total
    file = os.memfd_create("area")
    while total < 512 << 20:
        total += os.write(file, bytes(1 << 20))

attempt("fill", fill)
print(f"total: {'held' if total <= 130 << 20 else 'ESCAPED'}")
"""),
        Expected(prints={"fill": f"EFBIG|ENOSPC|{REFUSED}", "total": "held"}),
    ),
    Attack(
        9,
        "four children of 60 MB",
        with_attempt("""\
import time
def fork():
    for _ in range(4):
        if os.fork() == 0:
            kept = bytearray(b"x") * (60 << 20)
            time.sleep(0.3)
            os._exit(0)
    return "children"

attempt("fork", fork)
try:
    while True:
        os.wait()
except OSError:
    pass
"""),
        NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
        limits=Limits(time_seconds=2),
    ),
    Attack(
        17,
        "exhaust descriptors",
        with_attempt("""\
count = 0
def use_up():
    global count
    while count < 100_000:
        os.dup(0)
        count += 1

attempt("dup", use_up)
print(f"count: {count if count < 64 else 'ESCAPED'}")
"""),
        Expected(prints={"dup": "EMFILE", "count": "[56][0-9]"}),
    ),
    Attack(
        18,
        "create 200,000 files",
        with_attempt("""\
count = 0
def fill():
    global count
    while count < 200_000:
        os.close(os.open(f"file-{count}", os.O_CREAT | os.O_WRONLY))
        count += 1

attempt("fill", fill)
print(f"count: {count if count <= 1024 else 'ESCAPED'}")
"""),
        Expected(prints={"fill": "ENOSPC|EDQUOT", "count": "9[0-9]{2}|10[0-9]{2}"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        19,
        "a sparse file of 1 TB",
        with_attempt("attempt('fill', lambda: open('sparse', 'wb').truncate(1 << 40))\n"),
        Expected(prints={"fill": "EFBIG|ENOSPC"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        64,
        "one long interpreter operation",
        "10 ** 10 ** 8\n",
        TIMED_OUT,
        tiers=dict.fromkeys((Tier.B, Tier.C), (TIMED_OUT, MEMORY_ERROR)),
        limits=SHORT,
    ),
    Attack(
        70,
        "zombie flood",
        with_attempt("""\
count = 0
def fork():
    global count
    while count < 5000:
        if os.fork() == 0:
            os._exit(0)
        count += 1

attempt("fork", fork)
print(f"count: {count if count < 33 else 'ESCAPED'}")
"""),
        Expected(prints={"fork": "EAGAIN", "count": "2[0-9]|3[012]"}),
        tiers={Tier.B: (Expected(prints={"fork": "EAGAIN"}), NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
    ),
    Attack(
        142,
        "fill many memfds",
        with_attempt("""\
total, files = 0, []
def fill():
    global total
    while True:
        files.append(os.memfd_create("area"))
        try:
            while True:
                total += os.write(files[-1], bytes(1 << 20))
        except OSError as error:
            if error.errno != errno.EFBIG or total == 0:
                raise

attempt("fill", fill)
print(f"total: {'held' if total <= 130 << 20 else 'ESCAPED'}")
"""),
        NO_MEMORY,
        tiers=dict.fromkeys((Tier.B, Tier.C), (NO_MEMORY, Expected(prints={"total": "held"}))),
    ),
    Attack(
        143,
        "many small children beside an init that looks larger",
        with_attempt("""\
import time
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
except OSError:
    pass
reads, writes = os.pipe()
children = set()
def fork():
    while True:
        try:
            child = os.fork()
        except BlockingIOError:
            return "children"
        if child == 0:
            kept = bytearray(b"x") * (6 << 20)
            os.write(writes, b"x")
            time.sleep(10)
            os._exit(0)
        children.add(child)

attempt("fork", fork)
os.set_blocking(reads, False)
full, until = 0, time.monotonic() + 4
while full < len(children) and time.monotonic() < until:
    try:
        full += len(os.read(reads, 100))
    except BlockingIOError:
        time.sleep(0.01)
    for child in list(children):
        if os.waitpid(child, os.WNOHANG)[0]:
            children.remove(child)
"""),
        NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
        limits=Limits(time_seconds=5),
    ),
    Attack(
        144,
        "fill a disk larger than the memory limit",
        with_attempt("""\
def fill():
    with open("fill", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))

attempt("fill", fill)
"""),
        NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, Expected(prints={"fill": "ENOSPC|EFBIG"})), Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
        limits=Limits(time_seconds=2, memory_mb=24, disk_mb=64),
    ),
    Attack(
        71,
        "lock memory and raise priority",
        with_syscall("""\
attempt("mlockall", syscall, 151, 230, 3)
attempt("nice", os.nice, -5)
attempt("real-time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))
"""),
        Expected(
            prints={"mlockall": f"{REFUSED}|ENOMEM|DONE 0", "nice": REFUSED, "real-time": f"{REFUSED}|AttributeError"}
        ),
    ),
)
