"""Attacks on the host: its files, its processes, and what the daemon left open."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import ABSENT, REFUSED, Attack, Expected, Layer, with_attempt, with_syscall
from jobyard.sandbox.protocol import Tier

READ = with_attempt("def read(path):\n    return open(path, 'rb').read(4096)\n\n")
NOT_THERE = f"{ABSENT}|EPERM"
READ_ONLY = f"EROFS|{ABSENT}|EPERM|EISDIR"
FOLDERS = ("root", "home", "var", "sys", "boot", "opt", "srv", "run", "mnt", "media")
# Without namespaces a program sees world-readable files of the host.
SHARED: dict[Layer, tuple[Expected, ...]] = {Layer.NAMESPACES: ()}

ATTACKS = (
    Attack(
        20,
        "read /etc/passwd",
        READ
        + """\
def users():
    with open("/etc/passwd", "rb") as file:
        return " ".join(sorted({line.split(b":")[0].decode() for line in file}))

got = attempt("read", users)
if got.startswith("DONE") and not set(got.split()[1:]) <= {"box", "nobody", "root"}:
    print("users: ESCAPED")
attempt("shadow", read, "/etc/shadow")
attempt("hostname", read, "/etc/hostname")
attempt("machine", read, "/etc/machine-id")
""",
        Expected(
            prints={
                "read": f"DONE box nobody root|{ABSENT}",
                **dict.fromkeys(("shadow", "hostname", "machine"), ABSENT),
            }
        ),
        without=SHARED,
    ),
    Attack(
        21,
        "read a secret in the host's temporary folder",
        READ
        + """\
got = attempt("read", read, "@SECRET_FILE@")
for number in range(0, 400):
    for way in ("cwd", "root", "fd/0", "fd/3"):
        try:
            if b"@SECRET@" in read(f"/proc/{number}/{way}/@SECRET_FILE@"):
                print("proc: ESCAPED")
        except OSError:
            pass
""",
        Expected(prints={"read": ABSENT}),
        without=SHARED,
    ),
    Attack(
        22,
        "list the host's folders and the server's source",
        with_attempt(f"""\
for folder in {FOLDERS!r}:
    attempt(folder, lambda: os.listdir("/" + folder) or "nothing")
attempt("source", os.listdir, "@SOURCE@")
"""),
        Expected(prints={**dict.fromkeys(FOLDERS, f"{ABSENT}|DONE nothing"), "source": ABSENT}),
        without=SHARED,
    ),
    Attack(
        23,
        "read the environment",
        READ
        + """\
known = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ", "TMPDIR", "USER", "LOGNAME", "MALLOC_ARENA_MAX"}
others = [name for name in os.environ if name not in known and not name.startswith("PYTHON")]
print(f"others: {others or 'none'}")
for number in ("self", 1, 2, os.getppid()):
    try:
        if b"@SECRET@" in read(f"/proc/{number}/environ"):
            print("environ: ESCAPED")
    except OSError:
        pass
""",
        Expected(prints={"others": "none"}),
    ),
    Attack(
        24,
        "read environments of other processes",
        READ
        + """\
def processes():
    return len([name for name in os.listdir("/proc") if name.isdigit()])

got = attempt("processes", processes)
attempt("init", read, "/proc/1/environ")
""",
        Expected(prints={"processes": f"DONE [012]|{ABSENT}", "init": ABSENT}),
        without={Layer.NAMESPACES: (Expected(prints={"init": f"{ABSENT}|EPERM"}),)},
    ),
    Attack(
        30,
        "memory of other processes through /proc",
        with_attempt("""\
attempt("init", lambda: open("/proc/1/mem", "r+b"))
attempt("parent", lambda: open(f"/proc/{os.getppid()}/mem", "r+b"))
"""),
        Expected.each(f"{ABSENT}|EPERM", "init", "parent"),
    ),
    Attack(
        60,
        "inherited descriptors",
        with_attempt("""\
found = []
for fd in range(4096):
    try:
        os.fstat(fd)
    except OSError:
        continue
    found.append(fd)
print(f"open: {found}")
"""),
        Expected(prints={"open": r"\[0, 1, 2\]"}),
    ),
    Attack(
        61,
        "links to host files",
        with_attempt("""\
attempt("hard", os.link, "@SECRET_FILE@", "hard")
attempt("system", os.link, "/etc/passwd", "system")
attempt("soft", os.symlink, "@SECRET_FILE@", "soft")
attempt("through", lambda: open("soft").read())
"""),
        Expected(
            prints={
                "hard": NOT_THERE,
                "system": f"EXDEV|EROFS|{NOT_THERE}",
                "soft": f"DONE None|{NOT_THERE}|EROFS",
                "through": NOT_THERE,
            }
        ),
        without={Layer.NAMESPACES: (Expected(prints={"hard": f"EXDEV|EROFS|{NOT_THERE}"}),)},
    ),
    Attack(
        62,
        "create a device",
        with_attempt("""\
import stat
attempt("block", lambda: os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
attempt("character", lambda: os.mknod("mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
"""),
        Expected.each(f"{REFUSED}|EROFS|ENOENT", "block", "character"),
    ),
    Attack(
        63,
        "write to system folders",
        with_attempt("""\
def write(path):
    with open(path, "ab") as file:
        file.write(b"jobyard-attack")
    print("written: ESCAPED")

for name in ("usr", "etc", "dev", "lib", "bin", "proc"):
    attempt(name, write, f"/{name}/jobyard-attack")
attempt("top", write, "/jobyard-attack")
attempt("passwd", write, "/etc/passwd")
attempt("python", write, "/usr/bin/python3")
attempt("core", write, "/proc/sys/kernel/core_pattern")
attempt("remove", os.unlink, "/etc/passwd")
"""),
        Expected.each(
            f"{READ_ONLY}|ETXTBSY|EBUSY|EINVAL",
            "usr",
            "etc",
            "dev",
            "lib",
            "bin",
            "proc",
            "top",
            "passwd",
            "python",
            "core",
            "remove",
        ),
    ),
    Attack(
        67,
        "run other programs",
        with_attempt('attempt("exec", os.execv, "/usr/bin/stat", ["stat", "-L", "-c", "uid: %u", "/proc/self"])\n'),
        Expected(prints={"uid": "[1-9][0-9]*"}),
        tiers={Tier.C: (Expected(prints={"exec": REFUSED}),)},
        without={Layer.NAMESPACES: (Expected(prints={"exec": REFUSED}),)},
    ),
    Attack(
        68,
        "leave its cgroup",
        with_attempt("""\
attempt("list", os.listdir, "/sys/fs/cgroup")
for kind in ("memory", "pids", "unified", "."):
    attempt(kind, os.mkdir, f"/sys/fs/cgroup/{kind}/jobyard-attack")
"""),
        Expected.each(f"{READ_ONLY}", "list", "memory", "pids", "unified"),
        without={Layer.NAMESPACES: (Expected.each(READ_ONLY, "memory", "pids", "unified"),)},
    ),
    Attack(
        77,
        "kernel secrets in /proc",
        READ
        + """\
for name in ("kallsyms", "cmdline", "kcore", "modules", "net/route", "sysrq-trigger", "keys", "version", "meminfo"):
    attempt(name, read, f"/proc/{name}")
attempt("thread", read, f"/proc/{os.getpid()}/task/1/environ")
""",
        Expected.each(NOT_THERE, "kallsyms", "cmdline", "kcore", "modules", "sysrq-trigger", "keys", "version"),
        without=SHARED,
    ),
    Attack(
        78,
        "file handles, other namespaces, other processes' descriptors",
        with_syscall("""\
handle = ctypes.create_string_buffer(b"\\x80" + bytes(255), 256)
attempt("name", syscall, 303, 264, -100, b"/", handle, ctypes.byref(ctypes.c_int()), 0)
attempt("open", syscall, 304, 265, -100, handle, 0)
attempt("setns", syscall, 308, 268, 0, 0)
attempt("pidfd", syscall, 438, 438, 0, 1, 0)
attempt("read", syscall, 310, 270, 1, 0, 0, 0, 0, 0)
attempt("compare", syscall, 312, 272, 1, 1, 0, 0, 0)
"""),
        Expected.each(REFUSED, "name", "open", "setns", "pidfd", "read", "compare"),
        without={Layer.SECCOMP: (Expected(prints={"open": f"{REFUSED}|EBADF|EINVAL|ESTALE", "read": "E.*|DONE 0"}),)},
    ),
    Attack(
        140,
        "change mode, owner and times of host files",
        with_attempt("""\
for name, path in (("secret", "@SECRET_FILE@"), ("folder", "@SECRET_FOLDER@"), ("python", "/usr/bin/python3")):
    attempt(f"{name} mode", os.chmod, path, 0o600)
    attempt(f"{name} owner", os.chown, path, os.getuid(), os.getgid())
    attempt(f"{name} times", os.utime, path, (1, 1))
    attempt(f"{name} size", os.truncate, path, 0)
    attempt(f"{name} attribute", lambda: os.setxattr(path, "user.jobyard-attack", b"x"))
"""),
        Expected(
            prints={
                f"{name} {what}": f"{READ_ONLY}|EISDIR"
                for name in ("secret", "folder", "python")
                for what in ("mode", "owner", "times", "size", "attribute")
            }
        ),
        without={Layer.NAMESPACES: (Expected(prints={"secret mode": READ_ONLY, "secret times": READ_ONLY}),)},
    ),
    Attack(
        79,
        "bypass an audit hook",
        with_syscall("""\
def forbid(event, given):
    if event == "open":
        raise RuntimeError("no")

sys.addaudithook(forbid)
attempt("hooked", lambda: open("@SECRET_FILE@"))
attempt("unhooked", syscall, 257, 56, -100, b"@SECRET_FILE@", 0, 0)
"""),
        Expected(prints={"hooked": "RuntimeError", "unhooked": ABSENT}),
        without=SHARED,
    ),
)
