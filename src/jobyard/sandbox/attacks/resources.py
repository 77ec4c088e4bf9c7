"""Attacks on resource limits: processes, memory, disk, descriptors."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import (
    ATTEMPT,
    MEMORY_ERROR,
    NO_FORK,
    NO_MEMORY,
    OUT_OF_MEMORY,
    REFUSED,
    SHORT,
    SYSCALL,
    TIMED_OUT,
    Attack,
    Expected,
    Layer,
)
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

NO_FOLDER = Expected(prints={"fill": f"{REFUSED}|EROFS|ENOENT"})
FORKLESS = {Layer.NAMESPACES: (NO_FORK,)}  # without a namespace to contain them, children are not allowed
A_FEW = "[1-9]|[12][0-9]|3[012]"

ATTACKS = (
    Attack(
        number=1,
        name="fork bomb",
        program="""\
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        expected=TIMED_OUT,
        limits=SHORT,
        with_bystander=True,
    ),
    Attack(
        number=2,
        name="thread bomb",
        program=ATTEMPT
        + """\
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
""",
        expected=Expected(prints={"threads": A_FEW}),
        tiers={Tier.C: (Expected(prints={"threads": "[0-9]{1,3}"}),)},  # limited by the address space
    ),
    Attack(
        number=3,
        name="memory bomb",
        program="kept = []\nwhile True:\n    kept.append(bytearray(b'x') * (8 << 20))\n",
        expected=NO_MEMORY,
        tiers=OUT_OF_MEMORY,
        with_bystander=True,
    ),
    Attack(
        number=4,
        name="map 1 GB and touch it",
        program="""\
import mmap
area = mmap.mmap(-1, 1 << 30)
for place in range(0, 1 << 30, 4096):
    area[place] = 1
""",
        expected=NO_MEMORY,
        tiers=OUT_OF_MEMORY,
    ),
    Attack(
        number=5,
        name="fill the disk",
        program=ATTEMPT
        + """\
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
""",
        expected=Expected(prints={"fill": "ENOSPC|EFBIG|EDQUOT", "total": "held"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        number=6,
        name="fill /dev/shm",
        program=ATTEMPT
        + """\
total = 0
def fill():
    global total
    with open("/dev/shm/jobyard-attack", "wb", buffering=0) as file:
        while total < 64 << 20:
            total += file.write(bytes(1 << 20))

attempt("fill", fill)
print(f"total: {'held' if total <= 17 << 20 else 'ESCAPED'}")
""",
        expected=Expected(prints={"fill": f"ENOSPC|EFBIG|ENOENT|{REFUSED}|EROFS", "total": "held"}),
    ),
    Attack(
        number=7,
        name="200 MB of System V shared memory",
        program=SYSCALL
        + """\
area = attempt("shmget", syscall, 29, 194, 0, 200 << 20, 0o1600)
if area.startswith("DONE"):
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(int(area[5:]), None, 0)
    ctypes.memset(place, 1, 200 << 20)
    print("touched: ESCAPED")
""",
        expected=Expected(prints={"shmget": REFUSED}),
        without={Layer.SECCOMP: (NO_MEMORY, Expected(verdicts=(RunVerdict.SIGNALED,)))},
    ),
    Attack(
        number=8,
        name="fill a memfd",
        program=ATTEMPT
        + """\
total = 0
def fill():
    global total
    file = os.memfd_create("area")
    while total < 512 << 20:
        total += os.write(file, bytes(1 << 20))

attempt("fill", fill)
print(f"total: {'held' if total <= 130 << 20 else 'ESCAPED'}")
""",
        expected=Expected(prints={"fill": f"EFBIG|ENOSPC|{REFUSED}", "total": "held"}),
    ),
    Attack(
        number=9,
        name="four children of 60 MB",
        program=ATTEMPT
        + """\
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
""",
        expected=NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
        limits=Limits(time_seconds=2),
    ),
    Attack(
        number=17,
        name="exhaust descriptors",
        program=ATTEMPT
        + """\
count = 0
def use_up():
    global count
    while count < 100_000:
        os.dup(0)
        count += 1

attempt("dup", use_up)
print(f"count: {count if count < 64 else 'ESCAPED'}")
""",
        expected=Expected(prints={"dup": "EMFILE", "count": "[56][0-9]"}),
    ),
    Attack(
        number=18,
        name="create 200,000 files",
        program=ATTEMPT
        + """\
count = 0
def fill():
    global count
    while count < 200_000:
        os.close(os.open(f"file-{count}", os.O_CREAT | os.O_WRONLY))
        count += 1

attempt("fill", fill)
print(f"count: {count if count <= 1024 else 'ESCAPED'}")
""",
        expected=Expected(prints={"fill": "ENOSPC|EDQUOT", "count": "9[0-9]{2}|10[0-9]{2}"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        number=19,
        name="a sparse file of 1 TB",
        program=ATTEMPT + "attempt('fill', lambda: open('sparse', 'wb').truncate(1 << 40))\n",
        expected=Expected(prints={"fill": "EFBIG|ENOSPC"}),
        tiers={Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
    ),
    Attack(
        number=64,
        name="one long interpreter operation",
        program="10 ** 10 ** 8\n",
        expected=Expected(verdicts=(RunVerdict.TIME_LIMIT,)),
        tiers=dict.fromkeys((Tier.B, Tier.C), (TIMED_OUT, MEMORY_ERROR)),
        limits=SHORT,
    ),
    Attack(
        number=70,
        name="zombie flood",
        program=ATTEMPT
        + """\
count = 0
def fork():
    global count
    while count < 5000:
        if os.fork() == 0:
            os._exit(0)
        count += 1

attempt("fork", fork)
print(f"count: {count if count < 33 else 'ESCAPED'}")
""",
        expected=Expected(prints={"fork": "EAGAIN", "count": "2[0-9]|3[012]"}),
        tiers={Tier.B: (Expected(prints={"fork": "EAGAIN"}), NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
    ),
    Attack(
        number=142,
        name="fill many memfds",
        program=ATTEMPT
        + """\
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
""",
        expected=NO_MEMORY,
        tiers=dict.fromkeys((Tier.B, Tier.C), (NO_MEMORY, Expected(prints={"total": "held"}))),
    ),
    Attack(
        number=143,
        name="many small children beside an init that looks larger",
        program=ATTEMPT
        + """\
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
""",
        expected=NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, NO_FORK), Tier.C: (NO_FORK,)},
        without=FORKLESS,
        limits=Limits(time_seconds=5),
    ),
    Attack(
        number=144,
        name="fill a disk larger than the memory limit",
        program=ATTEMPT
        + """\
def fill():
    with open("fill", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))

attempt("fill", fill)
""",
        expected=NO_MEMORY,
        tiers={Tier.B: (NO_MEMORY, Expected(prints={"fill": "ENOSPC|EFBIG"})), Tier.C: (NO_FOLDER,)},
        without={Layer.NAMESPACES: (NO_FOLDER,)},
        limits=Limits(time_seconds=2, memory_mb=24, disk_mb=64),
    ),
    Attack(
        number=71,
        name="lock memory and raise priority",
        program=SYSCALL
        + """\
attempt("mlockall", syscall, 151, 230, 3)
attempt("nice", os.nice, -5)
attempt("real-time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))
""",
        expected=Expected(
            prints={
                "mlockall": f"{REFUSED}|ENOMEM|DONE 0",
                "nice": REFUSED,
                "real-time": f"{REFUSED}|AttributeError",
            }
        ),
    ),
)
