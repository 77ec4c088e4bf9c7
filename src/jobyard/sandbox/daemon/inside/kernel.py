"""System calls that Python does not expose, one function each. Failures raise OSError with the name of the call."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_CLONE_VM, _CLONE_PIDFD, _CLONE_INTO_CGROUP = 0x100, 0x1000, 0x200000000
_CHILD_TID_FLAGS = 0x01000000 | 0x00200000  # CHILD_SETTID and CHILD_CLEARTID

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_GET_TID_ADDRESS, _PR_SET_THP_DISABLE = 40, 41
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_LAST_CAPABILITY = 63
_M_ARENA_MAX = -8
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_LANDLOCK_RULE_PATH_BENEATH = 1

# Numbers of system calls differ between architectures; those of calls added since 2019 do not.
_X86, _ARM = ("x86_64", "aarch64")
_IS_X86 = platform.machine() == _X86
_NUMBERS = {
    _X86: {
        "capset": 126,
        "clone": 56,
        "kill": 62,
        "mount": 165,
        "pivot_root": 155,
        "prctl": 157,
        "seccomp": 317,
        "setns": 308,
        "sethostname": 170,
        "umount2": 166,
        "unshare": 272,
    },
    _ARM: {
        "capset": 91,
        "clone": 220,
        "kill": 129,
        "mount": 40,
        "pivot_root": 41,
        "prctl": 167,
        "seccomp": 277,
        "setns": 268,
        "sethostname": 161,
        "umount2": 39,
        "unshare": 97,
    },
}
_NUMBER = {
    "clone3": 435,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
    **_NUMBERS.get(platform.machine(), {}),
}

# PyDLL keeps the GIL held: a clone of this single-threaded process must still own it. Every argument is declared as a
# pointer, which accepts full-size integers, bytes, arrays and None.
_raw = ctypes.PyDLL(None, use_errno=True).syscall
_raw.argtypes = (ctypes.c_long, *(ctypes.c_void_p,) * 6)
_raw.restype = ctypes.c_long

_libc = ctypes.PyDLL(None, use_errno=True)
_stack = ctypes.create_string_buffer(64 << 10)
_pause = ctypes.cast(_libc.pause, ctypes.c_void_p)
_c_clone = _libc.clone
_c_clone.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

Argument = int | bytes | ctypes.Array[Any] | ctypes.Structure | None


def _syscall(name: str, a: Argument = 0, b: Argument = 0, c: Argument = 0, d: Argument = 0, e: Argument = 0) -> int:
    number = _NUMBER.get(name)
    if number is None:
        raise OSError(f"{name}: not supported on {platform.machine()}")
    result = int(_raw(number, a, b, c, d, e, 0))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def clone(flags: int = 0, group: int = -1) -> tuple[int, int]:
    """fork() into new namespaces: (0, -1) in the child, (pid, pidfd) in the parent.

    os.fork() takes no flags, and unshare() needs an extra process for a new pid namespace. The caller has one thread:
    the interpreter needs no repair in the child; the modules' after-fork hooks are skipped, which saves a hundred page
    copies each time. The C library caches the thread id, so the kernel writes the child's id to the same address.

    `group` is the open folder of a version 2 cgroup: the child starts in it, which is far faster than moving it.
    """
    pidfd = (ctypes.c_int * 1)(-1)
    flags |= _CLONE_PIDFD | (_CHILD_TID_FLAGS if _tid_address else 0)
    if group >= 0:
        where = ctypes.addressof(pidfd)
        request = (ctypes.c_uint64 * 11)(
            flags | _CLONE_INTO_CGROUP, where, _tid_address or 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, group
        )
        pid = _syscall("clone3", request, 88)
    elif _IS_X86:
        pid = _syscall("clone", flags | signal.SIGCHLD, 0, pidfd, _tid_address)
    else:  # the last two arguments are swapped
        pid = _syscall("clone", flags | signal.SIGCHLD, 0, pidfd, 0, _tid_address)
    return pid, pidfd[0] if pid else -1


def new_namespaces(flags: int) -> int:
    """Create namespaces and return the pidfd of their PID 1, which sleeps until it is killed.

    PID 1 shares the caller's memory, so it costs one stack frame; it never returns from pause(), so all of them can
    share one stack. The kernel reaps orphans in the namespace if the caller ignores SIGCHLD.
    """
    pidfd = (ctypes.c_int * 1)(-1)
    top = (ctypes.addressof(_stack) + len(_stack)) & ~0xF
    flags |= _CLONE_VM | _CLONE_PIDFD | NEWPID | signal.SIGCHLD
    if _c_clone(_pause, top, flags, None, pidfd) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"clone: {os.strerror(error)}")
    return pidfd[0]


def new_network() -> int:
    """Move the caller to a new network namespace, with all interfaces down, and return its descriptor."""
    unshare(NEWNET)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(which: int, flags: int) -> None:
    """Join a namespace, or those of a process given by pidfd. For a pid namespace this affects only future children."""
    _syscall("setns", which, flags)


def _find_tid_address() -> int:
    """Address where the C library stores the thread id; most kernels (CHECKPOINT_RESTORE) can tell."""
    found = (ctypes.c_uint64 * 1)()
    try:
        _syscall("prctl", _PR_GET_TID_ADDRESS, found)
    except OSError:
        return 0
    return int(found[0])


_tid_address = _find_tid_address()


def unshare(flags: int) -> None:
    _syscall("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _syscall("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())


def restrict_mount(path: str, attributes: int, *, recursive: bool = True) -> None:
    """mount_setattr: unlike a remount, it also changes the mounts below."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _syscall("mount_setattr", _AT_FDCWD, path.encode(), _AT_RECURSIVE if recursive else 0, request, 32)


def enter_root(path: str) -> None:
    """Make this folder the root and detach everything else."""
    os.chdir(path)
    _syscall("pivot_root", b".", b".")
    _syscall("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def kill_all() -> bool:
    """Kill all processes in this pid namespace except its PID 1, the caller. Return whether there were any."""
    return int(_raw(_NUMBER["kill"], -1, signal.SIGKILL, 0, 0, 0, 0)) == 0


def keep(thing: object) -> None:
    """Never free this object: freeing it in a box would write to its pages and so copy them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def set_hostname(name: str) -> None:
    _syscall("sethostname", name.encode(), len(name))


def die_with_parent() -> None:
    _syscall("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)


def set_dumpable(value: bool) -> None:
    """With False, not even the same user can inspect this process."""
    _syscall("prctl", _PR_SET_DUMPABLE, int(value))


def no_huge_pages() -> None:
    """Disable huge pages: one byte of a huge page in a pipe would pin all of it outside of every address space."""
    _syscall("prctl", _PR_SET_THP_DISABLE, 1)


def one_malloc_arena() -> None:
    """Use one malloc arena, instead of 64 MB of address space per thread."""
    _libc.mallopt(_M_ARENA_MAX, 1)


def no_new_privileges() -> None:
    _syscall("prctl", _PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """Prevent programs started from here from gaining capabilities; this process keeps its own."""
    with contextlib.suppress(OSError):  # beyond the last one
        for capability in range(_LAST_CAPABILITY + 1):
            _syscall("prctl", _PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    _syscall("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _syscall("capset", header, (ctypes.c_uint32 * 6)())


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class SeccompFilter:
    """A seccomp filter in the kernel's format; created once and loaded by every clone of this process."""

    def __init__(self, program: bytes) -> None:
        self._request = (_FilterProgram * 1)(_FilterProgram(len(program) // 8, program))

    def load(self) -> None:
        """Load the filter; this cannot be undone."""
        _syscall("seccomp", _SECCOMP_SET_MODE_FILTER, 0, self._request)

    def load_with_listener(self) -> int:
        """Load the filter; return the descriptor that receives the calls it suspends."""
        return _syscall("seccomp", _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER, self._request)


def open_beneath(folder: int, name: bytes, flags: int) -> int:
    """openat2: only below the folder and through no link, whatever the folder's owner changes meanwhile."""
    resolve = _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
    return _syscall("openat2", folder, name, (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, resolve), 24)


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 if it has none."""
    try:
        return _syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """Create a ruleset that denies these rights; grant some with landlock_allow, then call landlock_restrict."""
    abi = landlock_abi()
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    return _syscall("landlock_create_ruleset", (ctypes.c_uint64 * 3)(files, network, scopes), size, 0)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = (_PathBeneath * 1)(_PathBeneath(rights, parent))
        _syscall("landlock_add_rule", ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(parent)


def landlock_restrict(ruleset: int) -> None:
    _syscall("landlock_restrict_self", ruleset, 0)
