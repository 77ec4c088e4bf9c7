"""The few system calls that Python has no name for: one function each; a failure is an OSError that names the call."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_CLONE_PIDFD = 0x1000
_CHILD_TID_FLAGS = 0x01000000 | 0x00200000  # CHILD_SETTID and CHILD_CLEARTID

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_GET_TID_ADDRESS = 40
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_LAST_CAPABILITY = 63
_SECCOMP_SET_MODE_FILTER = 1
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_LANDLOCK_RULE_PATH_BENEATH = 1

# The numbers differ between the two families of processors; those added since 2019 are the same everywhere.
_X86, _ARM = ("x86_64", "aarch64")
_IS_X86 = platform.machine() == _X86
_NUMBERS = {
    _X86: {"clone": 56, "pivot_root": 155, "seccomp": 317},
    _ARM: {"clone": 220, "pivot_root": 41, "seccomp": 277},
}
_NUMBER = {
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
    **_NUMBERS.get(platform.machine(), {}),
}

# PyDLL: the interpreter's lock stays held. These processes have one thread, and a copy of it must own what it had.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _fail(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")


def _syscall(name: str, *arguments: object) -> int:
    number = _NUMBER.get(name)
    if number is None:
        raise OSError(f"{name}: no number known on {platform.machine()}")
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise _fail(name)
    return result


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        raise _fail(name)


def _prctl(option: int, value: int, third: int = 0) -> int:
    result = _libc.prctl(
        ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(third), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    return int(result)


def clone(flags: int = 0) -> tuple[int, int]:
    """fork() into new namespaces: (0, -1) in the child, (pid, pidfd) in the parent.

    os.fork() knows no flags, and unshare() needs one process more for a new pid namespace. The caller has one thread:
    nothing of the interpreter needs repair in the child, and what modules would do there is left out; it costs a
    hundred pages each time. The C library must know the child's id: the kernel writes it where the last one was.
    """
    pidfd = ctypes.c_int(-1)
    flags |= _CLONE_PIDFD | signal.SIGCHLD | (_CHILD_TID_FLAGS if _tid_address else 0)
    # The last two arguments have changed places between the families.
    where = ctypes.c_void_p(_tid_address)
    first, second = (where, None) if _IS_X86 else (None, where)
    pid = int(
        _libc.syscall(ctypes.c_long(_NUMBER["clone"]), ctypes.c_ulong(flags), None, ctypes.byref(pidfd), first, second)
    )
    if pid < 0:
        raise _fail("clone")
    return pid, pidfd.value if pid else -1


def _find_tid_address() -> int | None:
    """Where the C library keeps the thread's id; known to kernels that can be checkpointed, which is most."""
    found = ctypes.c_void_p()
    if _libc.prctl(ctypes.c_int(_PR_GET_TID_ADDRESS), ctypes.byref(found), 0, 0, 0) != 0:
        return None
    return found.value


_tid_address = _find_tid_address()


def unshare(flags: int) -> None:
    _call("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def restrict_mount(path: str, attributes: int, *, recursive: bool = True) -> None:
    """mount_setattr: also what is mounted below, which a remount would leave as it is."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _syscall(
        "mount_setattr",
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(flags),
        ctypes.byref(request),
        ctypes.c_size_t(32),
    )


def enter_root(path: str) -> None:
    """Make this folder the root, and let go of everything else."""
    os.chdir(path)
    _syscall("pivot_root", b".", b".")
    _call("umount2", b".", ctypes.c_int(_MNT_DETACH))
    os.chdir("/")


def set_hostname(name: str) -> None:
    _call("sethostname", name.encode(), ctypes.c_size_t(len(name)))


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def set_dumpable(value: bool) -> None:
    """Without it, not even the same user may look into this process."""
    _prctl(_PR_SET_DUMPABLE, int(value))


def no_new_privileges() -> None:
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
        raise _fail("prctl(NO_NEW_PRIVS)")


def drop_bounding_set() -> None:
    """No program started from here can gain a capability; what this process holds, it keeps."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _prctl(_PR_CAPBSET_DROP, capability) != 0:
            break


def drop_capabilities() -> None:
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _call("capset", ctypes.byref(header), ctypes.byref(nothing))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_filter(program: bytes) -> None:
    """Load a seccomp filter; there is no way back."""
    request = _Program(len(program) // 8, program)
    _syscall("seccomp", ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), ctypes.c_uint(0), ctypes.byref(request))


def open_beneath(folder: int, name: bytes, flags: int) -> int:
    """openat2: below the folder and through no link, whatever the folder's owner does meanwhile."""
    how = (ctypes.c_uint64 * 3)(
        flags | os.O_CLOEXEC, 0, _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
    )
    return _syscall("openat2", ctypes.c_int(folder), name, ctypes.byref(how), ctypes.c_size_t(24))


def landlock_abi() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    try:
        return _syscall("landlock_create_ruleset", None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """A set that takes these rights away; give some back with landlock_allow, then landlock_restrict."""
    request = (ctypes.c_uint64 * 3)(files, network, scopes)
    abi = landlock_abi()
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    return _syscall("landlock_create_ruleset", ctypes.byref(request), ctypes.c_size_t(size), ctypes.c_uint(0))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(rights, parent)
        _syscall(
            "landlock_add_rule",
            ctypes.c_int(ruleset),
            ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint(0),
        )
    finally:
        os.close(parent)


def landlock_restrict(ruleset: int) -> None:
    _syscall("landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint(0))
