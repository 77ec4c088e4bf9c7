"""Attacks through system calls that a program must not use."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import REFUSED, SHORT, Attack, Expected, Layer, with_attempt, with_syscall
from jobyard.sandbox.protocol import RunVerdict, Tier

NO_PROCESS = f"{REFUSED}|ESRCH"
# Without the filter these calls reach the kernel, and nothing is expected of them.
BY_FILTER: dict[Layer, tuple[Expected, ...]] = {Layer.SECCOMP: ()}
LEFT = {"capabilities": r"\[0\]", "groups": r"\[\]", "users": "1 1 held", "setgid": f"{REFUSED}|EINVAL"}
BAD_CALL = (Expected(verdicts=(RunVerdict.SIGNALED,), signal=31), Expected(prints={"call": REFUSED}))

ATTACKS = (
    Attack(
        29,
        "ptrace other processes",
        with_syscall("""\
attempt("init", syscall, 101, 117, 16, 1, 0, 0)
attempt("parent", syscall, 101, 117, 16, PARENT, 0, 0)
attempt("seize", syscall, 101, 117, 0x4206, 1, 0, 0)
"""),
        Expected.each(NO_PROCESS, "init", "parent", "seize"),
    ),
    Attack(
        31,
        "kill init and the parent",
        with_attempt("""\
import time
attempt("init", os.kill, 1, 9)
attempt("parent", os.kill, PARENT, 9)
attempt("stop", os.kill, PARENT, 19)
time.sleep(0.05)
print("alive: yes")
"""),
        Expected(prints={"init": f"{NO_PROCESS}|DONE None", "alive": "yes"}),
        tiers={
            Tier.C: (Expected(prints={"init": NO_PROCESS, "parent": NO_PROCESS, "stop": NO_PROCESS, "alive": "yes"}),)
        },
        without={Layer.NAMESPACES: (Expected(prints={"init": NO_PROCESS, "parent": NO_PROCESS, "alive": "yes"}),)},
        with_bystander=True,
    ),
    Attack(
        32,
        "kill every process",
        with_attempt("""\
attempt("all", os.kill, -1, 9)
attempt("group", os.killpg, 1, 9)
for number in range(2, 2000):
    if number != os.getpid():
        try:
            os.kill(number, 9)
        except OSError:
            pass
print("alive: yes")
"""),
        Expected(prints={"all": f"{NO_PROCESS}|DONE None", "alive": "yes"}),
        with_bystander=True,
    ),
    Attack(
        33,
        "unshare namespaces",
        with_syscall("""\
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("network", 0x40000000), ("pid", 0x20000000)):
    attempt(name, syscall, 272, 97, flag)
"""),
        Expected.each(REFUSED, "user", "mount", "network", "pid"),
        without=BY_FILTER,
    ),
    Attack(
        34,
        "user namespace by clone3 and clone",
        with_syscall("""\
def clone3():
    words = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
    if syscall(435, 435, ctypes.byref(words), 88) == 0:
        os._exit(0)

def clone():
    if syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0) == 0:
        os._exit(0)

attempt("clone3", clone3)
attempt("clone", clone)
"""),
        Expected(prints={"clone3": REFUSED, "clone": REFUSED}),
        without=BY_FILTER,
    ),
    Attack(
        35,
        "mount, chroot, pivot_root",
        with_syscall("""\
attempt("mount", syscall, 165, 40, b"none", b"/tmp", b"tmpfs", 0, 0)
attempt("umount", syscall, 166, 39, b"/proc", 2)
attempt("chroot", os.chroot, "/tmp")
attempt("pivot", syscall, 155, 41, b"/tmp", b"/tmp")
attempt("fsopen", syscall, 430, 430, b"tmpfs", 0)
attempt("tree", syscall, 428, 428, -100, b"/", 1)
"""),
        Expected.each(REFUSED, "mount", "umount", "chroot", "pivot", "fsopen", "tree"),
        without={Layer.SECCOMP: (Expected.each("EPERM", "mount", "umount", "chroot", "fsopen", "tree"),)},
    ),
    Attack(
        36,
        "keyrings, BPF, io_uring, perf, userfaultfd",
        with_syscall("""\
block = ctypes.create_string_buffer(256)
attempt("keyctl", syscall, 250, 219, 0, -3, 1)
attempt("add_key", syscall, 248, 217, b"user", b"jobyard-attack", b"x", 1, -3)
attempt("bpf", syscall, 321, 280, 0, block, 72)
attempt("io_uring", syscall, 425, 425, 8, block)
attempt("perf", syscall, 298, 241, block, 0, -1, -1, 0)
attempt("userfaultfd", syscall, 323, 282, 1)
"""),
        Expected.each(REFUSED, "keyctl", "add_key", "bpf", "io_uring", "perf", "userfaultfd"),
        without={Layer.SECCOMP: (Expected(prints={"bpf": f"{REFUSED}|EINVAL"}),)},
    ),
    Attack(
        37,
        "gain root by setuid programs",
        with_syscall("""\
print(f"privileges: {libc.prctl(39, 0, 0, 0, 0)}", flush=True)
attempt("setuid", os.setuid, 0)
attempt("setgroups", os.setgroups, [0])
attempt("exec", os.execv, "/bin/su", ["su", "-c", "echo su: ESCAPED"])
"""),
        Expected(
            verdicts=(RunVerdict.OK, RunVerdict.RUNTIME_ERROR, RunVerdict.TIME_LIMIT),
            prints={"privileges": "1", "setuid": f"{REFUSED}|EINVAL", "setgroups": f"{REFUSED}|EINVAL"},
        ),
        limits=SHORT,
    ),
    Attack(
        87,
        "leftover capabilities and groups",
        with_syscall("""\
words = (ctypes.c_uint32 * 6)(*[1] * 6)
attempt("capget", syscall, 125, 90, (ctypes.c_uint32 * 2)(0x20080522, 0), words)
print(f"capabilities: {sorted(set(words))}")
print(f"groups: {sorted(set(os.getgroups()) - {os.getgid(), 65534})}")
print(f"users: {len({*os.getresuid()})} {len({*os.getresgid()})} {'ESCAPED' if 0 in os.getresuid() else 'held'}")
print(f"bounding: {[number for number in range(41) if libc.prctl(23, number, 0, 0, 0) == 1]}")
attempt("setgid", os.setgid, 0)
attempt("keep", lambda: libc.prctl(8, 1, 0, 0, 0))
"""),
        Expected(prints={**LEFT, "bounding": r"\[\]"}),
        # Only root can empty the bounding set; with no_new_privs it grants nothing.
        tiers=dict.fromkeys((Tier.B, Tier.C), (Expected(prints=LEFT),)),
    ),
    Attack(
        39,
        "32-bit system calls (int 0x80)",
        with_syscall("""\
import mmap
if IS_ARM:
    raise SystemExit(print("call: ENOSYS"))
area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
area.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
got = call()
print(f"call: {'ESCAPED' if got > 0 else errno.errorcode.get(-got)}")
"""),
        BAD_CALL[0],
        tiers=dict.fromkeys(Tier, BAD_CALL),
        without=BY_FILTER,
    ),
    Attack(
        40,
        "inotify and fanotify",
        with_syscall('attempt("inotify", syscall, 294, 26, 0)\nattempt("fanotify", syscall, 300, 262, 0, 0)\n'),
        Expected(prints={"inotify": REFUSED, "fanotify": REFUSED}),
        without=BY_FILTER,
    ),
    Attack(
        89,
        "trigger the host's core dump helper",
        with_syscall("""\
import resource
print(f"limit: {resource.getrlimit(resource.RLIMIT_CORE)}")
attempt("lower", resource.setrlimit, resource.RLIMIT_CORE, (0, 0))
none = (ctypes.c_uint64 * 2)(0, 0)
attempt("call", syscall, 160, 164, 4, none)
attempt("wide", syscall, 160, 164, (1 << 32) + 4, none)
attempt("other", syscall, 302, 261, 0, 4, none, 0)
attempt("other wide", syscall, 302, 261, 0, (1 << 32) + 4, none, 0)
attempt("usual", resource.setrlimit, resource.RLIMIT_NOFILE, (20, 20))
"""),
        # A core_pattern with a pipe starts its helper at every size except 1.
        Expected(
            prints={
                "limit": r"\(1, 1\)",
                **dict.fromkeys(("lower", "call", "wide", "other", "other wide"), f"{REFUSED}|ValueError"),
                "usual": "DONE None",
            }
        ),
        without={Layer.SECCOMP: (Expected(prints={"limit": r"\(1, 1\)"}),)},
    ),
    Attack(
        88,
        "probe the page cache for what others have read",
        with_attempt("""\
import glob
file = os.open(glob.glob("/usr/lib/python3*/os.py")[0], os.O_RDONLY)
attempt("empty", os.posix_fadvise, file, 0, 0, os.POSIX_FADV_DONTNEED)
attempt("ask", os.preadv, file, [bytearray(16)], 0, os.RWF_NOWAIT)
"""),
        Expected(prints={"empty": REFUSED, "ask": REFUSED}),
        without=BY_FILTER,
    ),
    Attack(
        56,
        "set the clock",
        with_attempt('import time\nattempt("set", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))\n'),
        Expected(prints={"set": REFUSED}),
    ),
    Attack(
        57,
        "raise its limits",
        with_attempt("""\
import resource
for name in ("NOFILE", "FSIZE", "CORE", "AS"):
    which = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY:
        print(f"{name}: unlimited")
    else:
        attempt(name, resource.setrlimit, which, (hard + 1, hard + 1))
attempt("parent", lambda: resource.prlimit(PARENT, resource.RLIMIT_NOFILE, (9, 9)))
"""),
        Expected(
            prints={
                **dict.fromkeys(("NOFILE", "FSIZE", "CORE"), f"ValueError|{REFUSED}"),
                "AS": f"ValueError|unlimited|{REFUSED}",
                "parent": f"{NO_PROCESS}|ValueError",
            }
        ),
        # Its init has the same user: without the filter it can tighten the limits of the init, never loosen them.
        without={Layer.SECCOMP: (Expected.each("ValueError", "NOFILE", "FSIZE", "CORE"),)},
    ),
    Attack(
        59,
        "write machine code and run it",
        with_syscall("""\
import mmap
area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
area.write(b"\\x40\\x05\\x80\\x52\\xc0\\x03\\x5f\\xd6" if IS_ARM else b"\\xb8\\x2a\\x00\\x00\\x00\\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
print(f"answer: {call()}")
"""),
        Expected(prints={"answer": "42"}),
    ),
    Attack(
        69,
        "inject input into a terminal",
        with_attempt("""\
import fcntl, termios
attempt("push", lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x"))
attempt("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
attempt("linux", lambda: fcntl.ioctl(0, 0x541C, b"\\x02"))
"""),
        Expected(
            prints={"push": f"{REFUSED}|ENOTTY|EINVAL", "terminal": f"{REFUSED}|ENOENT|ENXIO", "linux": ".*E[A-Z]+"}
        ),
    ),
    Attack(
        80,
        "x32 system calls",
        with_syscall("attempt('call', syscall, 0x40000000 + 39, -1)\n"),
        BAD_CALL[0],
        tiers=dict.fromkeys(Tier, BAD_CALL),
        without=BY_FILTER,
    ),
    Attack(
        81,
        "reboot, modules, swap, accounting, host name",
        with_syscall("""\
attempt("reboot", syscall, 169, 142, 0, 0, 0, 0)
attempt("module", syscall, 313, 273, 0, b"", 0)
attempt("kexec", syscall, 246, 104, 0, 0, 0, 0)
attempt("swap", syscall, 167, 224, b"/jobyard-attack", 0)
attempt("accounting", syscall, 163, 89, b"/jobyard-attack")
attempt("hostname", syscall, 170, 161, b"attack", 6)
attempt("syslog", syscall, 103, 116, 3, ctypes.create_string_buffer(64), 64)
attempt("ports", syscall, 172, -1, 3)
"""),
        Expected.each(REFUSED, "reboot", "module", "kexec", "swap", "accounting", "hostname", "syslog", "ports"),
        without={Layer.SECCOMP: (Expected.each("EPERM|ENOSYS", "reboot", "module", "swap", "hostname"),)},
    ),
    Attack(
        141,
        "signals through the owner of a pipe",
        with_syscall("""\
import fcntl, time
# F_SETSIG and F_SETOWN: the owner of the pipe gets the signal when it becomes readable.
for pid in {PARENT, 1, PARENT - 1} - {0, os.getpid()}:
    reads, writes = os.pipe()
    attempt("signal", fcntl.fcntl, reads, 10, 9)
    attempt("owner", fcntl.fcntl, reads, 8, pid)
    attempt("flags", fcntl.fcntl, reads, fcntl.F_SETFL, os.O_ASYNC if hasattr(os, "O_ASYNC") else 0o20000)
    os.write(writes, b"x")
time.sleep(0.05)
print("alive: yes")
"""),
        Expected(prints={"alive": "yes"}),
        tiers={Tier.C: (Expected(prints={"signal": REFUSED, "owner": REFUSED, "alive": "yes"}),)},
        with_bystander=True,
    ),
    Attack(
        82,
        "remove its own restrictions",
        with_syscall("""\
attempt("death", lambda: libc.prctl(1, 0, 0, 0, 0))
attempt("filter", lambda: libc.prctl(22, 0, 0, 0, 0))
attempt("keep", lambda: libc.prctl(8, 1, 0, 0, 0))
attempt("privileges", lambda: libc.prctl(38, 0, 0, 0, 0))
attempt("ambient", lambda: libc.prctl(47, 2, 21, 0, 0))
print(f"still: {libc.prctl(39, 0, 0, 0, 0)}")
attempt("capset", syscall, 126, 91, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))
import time
time.sleep(60)
"""),
        Expected(verdicts=(RunVerdict.TIME_LIMIT,), prints={"still": "1", "capset": "EPERM|ENOSYS|EACCES"}),
        limits=SHORT,
    ),
)
