"""Attacks with objects in the kernel: locks, buffers, filters, timers, and what the kernel tells of the host."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import (
    NO_FORK,
    NO_MEMORY,
    REFUSED,
    Attack,
    Expected,
    Layer,
    with_attempt,
    with_syscall,
)
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

BY_FILTER: dict[Layer, tuple[Expected, ...]] = {Layer.SECCOMP: ()}
ENDED = Expected(prints={"end": "reached"}, in_ms=1500)
FEW = Limits(memory_mb=24)
# The limit of all children of a user namespace, or of the user.
AT_MOST_256 = "[0-9]{1,2}|1[0-9]{2}|2[0-4][0-9]|25[0-6]"

ATTACKS = (
    Attack(
        154,
        "a child that belongs to the zygote (CLONE_PARENT)",
        with_syscall("""\
import time
def fork():
    if syscall(56, 220, 0x8000 | 17, 0, 0, 0, 0) == 0:
        time.sleep(60)
        os._exit(0)
    return "parent"

attempt("fork", fork)
print("end: reached", flush=True)
"""),
        Expected(prints={"fork": REFUSED, "end": "reached"}, in_ms=1500),
        tiers={Tier.C: (NO_FORK,)},
        without={Layer.SECCOMP: (ENDED,)},
        with_bystander=True,
    ),
    Attack(
        155,
        "locks, which no limit counts",
        with_syscall("""\
import fcntl, glob
file = os.open(glob.glob("/usr/lib/python3*/os.py")[0], os.O_RDONLY)
nonsense = (ctypes.c_uint64 * 4)(*[99] * 4)  # rejected as EINVAL by a kernel that looks at it
for name, command in (("set", 6), ("wait", 7), ("open set", 37), ("open wait", 38), ("lease", 1024), ("notify", 1026)):
    attempt(name, syscall, 72, 25, file, command, nonsense)
attempt("flock", fcntl.flock, file, fcntl.LOCK_SH)
"""),
        Expected(
            prints={
                **dict.fromkeys(("set", "wait"), f"DONE 0|{REFUSED}"),
                **dict.fromkeys(("open set", "open wait", "lease", "notify", "flock"), REFUSED),
            }
        ),
        without=BY_FILTER,
    ),
    Attack(
        156,
        "fill the buffers of sockets",
        with_attempt("""\
import socket
total, kept = 0, []
def fill():
    global total
    while True:
        for one, other in (kept.append(socket.socketpair()) or kept[-1], kept[-1][::-1]):
            one.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                try:
                    one.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
                except OSError:
                    pass
            try:
                while True:
                    total += one.send(bytes(32 << 10))
            except BlockingIOError:
                pass

attempt("fill", fill)
print(f"total: {'held' if total <= 20 << 20 else 'ESCAPED'}")
"""),
        NO_MEMORY,
        tiers=dict.fromkeys(Tier, (NO_MEMORY, Expected(prints={"fill": "EMFILE", "total": "held"}))),
        limits=FEW,
    ),
    Attack(
        157,
        "fill the buffers of pipes",
        with_attempt("""\
import fcntl
total = 0
def fill():
    global total
    while True:
        _, end = os.pipe()
        os.set_blocking(end, False)
        try:
            fcntl.fcntl(end, 1031, 1 << 20)
        except OSError:
            pass
        try:
            while True:
                total += os.write(end, bytes(32 << 10))
        except BlockingIOError:
            pass

attempt("fill", fill)
print(f"total: {'held' if total <= 16 << 20 else 'ESCAPED'}")
"""),
        NO_MEMORY,
        tiers=dict.fromkeys(Tier, (NO_MEMORY, Expected(prints={"fill": "EMFILE", "total": "held"}))),
        limits=Limits(memory_mb=16),
    ),
    Attack(
        158,
        "packet filters, whose machine code has one limit for the machine",
        with_syscall("""\
import socket
one, other = socket.socketpair()
code = (ctypes.c_uint64 * 1)(6 | 0xFFFF << 32)  # accept
words = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))
attempt("classic", syscall, 54, 208, one.fileno(), 1, 26, words, 16)
attempt("wide", syscall, 54, 208, one.fileno(), 1, (1 << 32) + 26, words, 16)
attempt("extended", syscall, 54, 208, one.fileno(), 1, 50, words, 4)
attempt("group", syscall, 54, 208, one.fileno(), 1, 51, words, 16)
attempt("usual", lambda: one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(16)))
"""),
        Expected(prints={**dict.fromkeys(("classic", "wide", "extended", "group"), REFUSED), "usual": "DONE None"}),
        without=BY_FILTER,
    ),
    Attack(
        159,
        "output in packets of a byte",
        with_attempt("""\
import fcntl
attempt("packets", fcntl.fcntl, 1, fcntl.F_SETFL, os.O_DIRECT)
for _ in range(5000):
    os.write(2, b"x")
"""),
        Expected(prints={"packets": REFUSED}, stderr="^x{5000}$"),
        without={Layer.SECCOMP: (Expected(),)},
        with_bystander=True,
    ),
    Attack(
        160,
        "10,000 timers",
        with_syscall("""\
count = 0
number = (ctypes.c_int * 1)()
def use_up():
    global count
    while count < 10_000:
        syscall(222, 107, 1, 0, number)
        count += 1

attempt("timers", use_up)
print(f"count: {count}")
"""),
        Expected(prints={"timers": "EAGAIN", "count": AT_MOST_256}),
    ),
    Attack(
        161,
        "many watches and mappings",
        with_attempt("""\
import mmap, select
kept, watches, maps = [], 0, []
def watch():
    global watches
    polls = [select.epoll() for _ in range(25)]
    for _ in range(12):
        kept.append(os.pipe())
    for poll in polls:
        for pair in kept:
            for end in pair:
                poll.register(end)
                watches += 1

def map_pages():
    while len(maps) < 100_000:
        maps.append(mmap.mmap(-1, 8192, prot=mmap.PROT_READ if len(maps) % 2 else 0))

attempt("watch", watch)
attempt("map", map_pages)
print(f"maps: {'held' if len(maps) < 70_000 else 'ESCAPED'}")
"""),
        NO_MEMORY,
        tiers=dict.fromkeys(Tier, (NO_MEMORY, Expected(prints={"map": "ENOMEM|MemoryError", "maps": "held"}))),
        limits=FEW,
    ),
    Attack(
        162,
        "times of a device, which the next program sees",
        with_attempt("""\
for name in ("null", "zero", "urandom"):
    attempt(name, os.utime, f"/dev/{name}")
    attempt(f"{name} mode", os.chmod, f"/dev/{name}", 0o666)
attempt("write", lambda: open("/dev/null", "w").write("x"))
"""),
        Expected(
            prints={
                **Expected.each(f"{REFUSED}|EROFS", "null", "zero", "urandom", "null mode", "zero mode").prints,
                "write": "DONE 1",
            }
        ),
    ),
    Attack(
        163,
        "ask for links, attributes and processes of the host",
        with_syscall("""\
import time
OWN = os.getpid()
text = ctypes.create_string_buffer(64)
attempt("link", os.readlink, "/proc/1/exe")
attempt("own link", os.readlink, "/proc/self/exe")
attempt("attribute", os.getxattr, "/usr", "security.capability")
attempt("attributes", os.listxattr, "/usr")
attempt("group", os.getpgid, PARENT)
attempt("session", os.getsid, PARENT)
attempt("cores", os.sched_getaffinity, PARENT)
attempt("policy", os.sched_getscheduler, PARENT)
attempt("priority", os.getpriority, os.PRIO_PROCESS, PARENT)
attempt("futexes", syscall, 274, 100, PARENT, text, text)
attempt("clock", time.clock_gettime, ~PARENT << 3 | 2)
attempt("timer", syscall, 222, 107, ~PARENT << 3 | 2, 0, text)
attempt("own group", os.getpgid, OWN)
attempt("own cores", lambda: len(os.sched_getaffinity(0)) > 0)
attempt("own clock", lambda: time.process_time() >= 0 and time.thread_time() >= 0)
print("end: reached")
"""),
        ENDED,
        tiers={
            Tier.C: (
                Expected(
                    prints={
                        **Expected.each(REFUSED, "link", "own link", "attribute", "attributes", "group").prints,
                        **Expected.each(REFUSED, "session", "cores", "policy", "priority", "futexes").prints,
                        **Expected.each(REFUSED, "clock", "timer").prints,
                        "own group": "DONE [0-9]+",
                        **Expected.each("DONE True", "own cores", "own clock").prints,
                    }
                ),
            )
        },
    ),
    Attack(
        164,
        "standard streams by name",
        """\
text = open("/dev/stdin").read()
for number, name in ((1, "stdout"), (2, "stderr")):
    with open(f"/dev/{name}", "w") as file:
        file.write(f"{text}{number}")
""",
        Expected(stdout=b"given1", stderr="^given2$"),
        tiers={Tier.C: (Expected(verdicts=(RunVerdict.OK, RunVerdict.RUNTIME_ERROR)),)},
        without={Layer.NAMESPACES: ()},
        stdin=b"given",
    ),
    Attack(
        172,
        "threads with descriptors of their own",
        with_syscall("""\
import mmap
VM, SIGHAND, THREAD = 0x100, 0x800, 0x10000
stack = mmap.mmap(-1, 65536)
top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + 65536
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "child"

def thread():
    libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    if libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, VM | SIGHAND | THREAD, None) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def write_to_closed():  # succeeds if the thread still has the end to read from
    reader, writer = os.pipe()
    attempt("thread", thread)
    os.close(reader)
    os.write(writer, b"x")

may_fork = attempt("fork", fork).startswith("DONE")
holds = attempt("write", write_to_closed).startswith("DONE")
print(f"descriptors: {'ESCAPED' if holds and not may_fork else 'held'}", flush=True)
os._exit(0)
"""),
        # A program that may fork has a control group, which counts the descriptors of its processes too.
        Expected(prints={"descriptors": "held"}),
    ),
)
