"""The system calls that a program may use, by tier; and the filters of zygote and box together equal a single one."""

from __future__ import annotations

import contextlib
import errno
import platform
import random
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from jobyard.sandbox.daemon import seccomp

pyseccomp = pytest.importorskip("pyseccomp")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="system call numbers of x86_64")

ALLOW, NOTIFY, ERRNO, KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
X86, X32, ARM, I386 = 0xC000003E, 0x40000000, 0xC00000B7, 0x40000003
RULES = [
    seccomp.Rules(),
    seccomp.Rules(can_fork=False, has_memory_group=False),
    seccomp.Rules(can_execute=False, can_change_files=False),
    seccomp.Rules(unix_sockets=True),
    seccomp.Rules(tcp=True),
    seccomp.Rules(tcp=True, unix_sockets=True),
]
RULE_NAMES = ["all", "no fork", "read only", "Unix sockets", "TCP", "TCP and Unix sockets"]
CLONE, CLONE3, FCNTL, MOUNT, SECCOMP, SETNS, PRCTL_NUMBER = 56, 435, 72, 165, 317, 308, 157
SOCKET, CONNECT = 41, 42


@cache
def instructions(program: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<HBBI", program))


def outcome(
    program: bytes, number: int, arguments: tuple[int, ...], architecture: int = X86, loads: list[int] | None = None
) -> int:
    """Interpret a BPF program, as far as libseccomp uses it. `loads` gets the offsets that it looks at."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments)
    code = instructions(program)
    a = at = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:  # load
                (a,) = struct.unpack_from("<I", data, value)
                if loads is not None:
                    loads.append(value)
            case 0x54:  # and
                a &= value
            case 0x05:  # jump
                at += value
            case 0x15:
                at += yes if a == value else no
            case 0x25:
                at += yes if a > value else no
            case 0x35:
                at += yes if a >= value else no
            case 0x45:
                at += yes if a & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown BPF operation {operation:#x}")


def together(filters: seccomp.Filters, number: int, arguments: tuple[int, ...], architecture: int = X86) -> int:
    """The strictest action; of equal ones, that of the filter loaded last."""
    seen = [outcome(program, number, arguments, architecture) for program in (filters.box, filters.zygote)]
    signed = [value - (1 << 32) if value & KILL else value for value in (each & 0xFFFF0000 for each in seen)]
    return seen[signed.index(min(signed))]


# Written out, not derived: a call more, or a value more, is a decision.
EVERYWHERE = """
access alarm arch_prctl brk capget chdir close close_range copy_file_range dup dup2 dup3 epoll_create epoll_create1
epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 exit exit_group faccessat faccessat2
fchdir fdatasync fstat fstatfs fsync futex futex_waitv get_mempolicy getcpu getcwd getdents getdents64 getegid
geteuid getgid getgroups getitimer getpeername getpgrp getpid getppid getrandom getresgid getresuid getrlimit
getrusage getsockname getsockopt gettid gettimeofday getuid lseek lstat madvise map_shadow_stack membarrier mincore
mlock mlock2 mmap mprotect mremap msync munlock munmap nanosleep newfstatat open openat openat2 pause pipe pipe2
pkey_alloc pkey_free pkey_mprotect poll ppoll pread64 preadv pselect6 pwrite64 pwritev pwritev2 read readv recvfrom
recvmmsg recvmsg restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
rt_sigtimedwait sched_get_priority_max sched_get_priority_min sched_yield select sendfile sendto set_robust_list
set_tid_address setitimer setpgid setsid shutdown sigaltstack signalfd signalfd4 stat statfs statx sync_file_range
sysinfo time timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times umask uname wait4 waitid write writev
"""
WITH_NAMESPACES = """
chmod chown clock_getres clock_gettime clock_nanosleep creat execve execveat fallocate fchmod fchmodat fchown fchownat
fgetxattr flistxattr ftruncate futimesat get_robust_list getpgid getpriority getsid getxattr kill lchown lgetxattr link
linkat listxattr llistxattr mkdir mkdirat pidfd_open pidfd_send_signal readlink readlinkat rename renameat renameat2
rmdir rt_sigqueueinfo rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler setpriority symlink symlinkat
tgkill timer_create tkill truncate unlink unlinkat utime utimensat utimes
"""
WITH_GROUP = "fork memfd_create splice tee vfork vmsplice"
WITH_NAMED_SOCKETS = " accept accept4 bind connect listen"
OWN_PID = 0x7FEDCBA9
DESCRIPTOR_COMMANDS = {0, 1, 2, 3, 4, 5, 1030, 1032, 1033, 1034}
PROCESS_OPTIONS = {2, 3, 4, 8, 15, 16, 21, 23, 27, 29, 30, 35, 38, 39, 41, 42, 0x53564D41}
LIMITS = set(range(16)) - {4}
CLOCKS = {*range(12), 0xFFFFFFFA, 0xFFFFFFFE}
SINGLE_FLAGS = {0, *(1 << bit for bit in range(32))}
# Without those for namespaces and without PARENT.
CLONE_FLAGS = SINGLE_FLAGS - {1 << bit for bit in (15, 17, 25, 26, 27, 28, 29, 30)}
CLONE_THREAD, CLONE_FILES = 0x10000, 0x400
THREAD = CLONE_THREAD | CLONE_FILES
FLAGS = {start | flag for start in (0, CLONE_THREAD, THREAD) for flag in SINGLE_FLAGS}


TRIED = {
    *range(80),
    *range(1020, 1050),
    *range(0x5400, 0x5460),
    *(1 << bit for bit in range(32)),
    *(THREAD | 1 << bit for bit in range(32)),
    *range((1 << 32) - 20, 1 << 32),
    OWN_PID,
    OWN_PID + 1,
    0x53564D41,
}


class Tier(NamedTuple):
    rules: seccomp.Rules
    always: str
    # Values of an argument that are allowed, by call; the key also has arguments that are the same for all of them.
    values: dict[tuple[str, int, tuple[int, ...]], set[int]]


def without(names: str, left_out: str) -> str:
    return " ".join(name for name in names.split() if name not in left_out.split())


MSG_FASTOPEN, MSG_ZEROCOPY = 0x20000000, 0x4000000
IN_ALL_TIERS: dict[tuple[str, int, tuple[int, ...]], set[int]] = {
    ("fcntl", 1, ()): DESCRIPTOR_COMMANDS,
    ("fcntl", 2, (0, 4)): {flags for flags in FLAGS if not flags & 1 << 14},
    ("ioctl", 1, ()): {0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451},
    ("prctl", 0, ()): PROCESS_OPTIONS,
    ("setsockopt", 2, (0, 1)): {20, 21},
    ("setsockopt", 1, (0, 0, 20)): {1},
    ("socketpair", 1, (1,)): {value for value in TRIED if value & 0xFF in (1, 5)},  # the type; the rest are flags
    ("socketpair", 0, (0, 1)): {1},
    ("setrlimit", 0, ()): LIMITS,
    ("prlimit64", 1, (0, 0, 1)): LIMITS,
    ("prlimit64", 1, ()): {*LIMITS, 4},  # only reads
    ("prlimit64", 0, (0, 7)): {0},
    ("clone", 0, ()): {THREAD | flag for flag in CLONE_FLAGS},
    ("clone3", 0, ()): set(),
}
FORKS = {("clone", 0, ()): {start | flag for start in (0, CLONE_THREAD, THREAD) for flag in CLONE_FLAGS}}
PRCTL = {("prctl", 0, ()): {1, *PROCESS_OPTIONS}}
ONE, ALL = {OWN_PID}, {0, OWN_PID}
TIERS = {
    "with a group": Tier(
        seccomp.Rules(),
        EVERYWHERE + WITH_NAMESPACES + WITH_GROUP,
        IN_ALL_TIERS
        | PRCTL
        | FORKS
        | {("fcntl", 1, ()): {1031, *DESCRIPTOR_COMMANDS}, ("setsockopt", 2, (0, 1)): {7, 8, 20, 21}},
    ),
    "with Unix sockets": Tier(
        seccomp.Rules(unix_sockets=True),
        EVERYWHERE + WITH_NAMESPACES + WITH_GROUP + WITH_NAMED_SOCKETS,
        IN_ALL_TIERS
        | PRCTL
        | FORKS
        | {("fcntl", 1, ()): {1031, *DESCRIPTOR_COMMANDS}, ("setsockopt", 2, (0, 1)): {2, 7, 8, 20, 21}}
        | {("setsockopt", 1, (0, 0, 2)): {1}}
        | {("socket", 0, (0, 1)): {1}, ("socket", 1, (1,)): {1}, ("socket", 2, (1, 1)): {0}},
    ),
    "with TCP": Tier(
        seccomp.Rules(tcp=True),
        without(
            EVERYWHERE + WITH_NAMESPACES + WITH_GROUP + WITH_NAMED_SOCKETS, "getsockopt sendto sendfile splice tee"
        ),
        IN_ALL_TIERS
        | PRCTL
        | FORKS
        | {("fcntl", 1, ()): {1031, *DESCRIPTOR_COMMANDS}, ("setsockopt", 2, (0, 1)): {2, 9, 13, 20, 21}}
        | {("setsockopt", 2, (0, 6)): {1, 4, 5, 6}, ("setsockopt", 1, (0, 0, 2)): {1}}
        | {("getsockopt", 1, ()): {1}, ("getsockopt", 2, (0, 6)): {1, 2, 4, 5, 6, 11}}
        | {("sendto", 3, ()): {value for value in TRIED if not value & (MSG_FASTOPEN | MSG_ZEROCOPY)}}
        | {("socket", 0, (0, 1)): {2}, ("socket", 1, (2,)): {1}, ("socket", 2, (2, 1)): {0, 6}},
    ),
    "B": Tier(
        seccomp.Rules(can_fork=False, has_memory_group=False), EVERYWHERE + WITH_NAMESPACES, IN_ALL_TIERS | PRCTL
    ),
    "C": Tier(
        seccomp.Rules(
            can_fork=False, can_execute=False, own_pid_only=True, can_change_files=False, has_memory_group=False
        ),
        EVERYWHERE,
        IN_ALL_TIERS
        | {("prlimit64", 0, (0, 7)): ALL}
        | {(name, 0, ()): ONE for name in ("kill", "tgkill")}
        | {(f"sched_set{name}", 0, ()): {0} for name in ("affinity", "attr", "param", "scheduler")}
        | {(f"sched_get{name}", 0, ()): ALL for name in ("affinity", "attr", "param", "scheduler")}
        | {(name, 0, ()): ALL for name in ("get_robust_list", "getpgid", "getsid", "sched_rr_get_interval")}
        | {("getpriority", 1, ()): ALL, ("getpriority", 0, ()): {0}}
        | {(name, 0, ()): CLOCKS for name in ("clock_getres", "clock_gettime", "clock_nanosleep", "timer_create")},
    ),
}


@cache
def numbers() -> dict[str, int]:
    """System calls that this libseccomp knows."""
    found = {}
    for number in range(600):
        with contextlib.suppress(ValueError):
            found[pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, number).decode()] = number
    return found


@pytest.mark.parametrize("name", TIERS)
def test_nothing_else_is_allowed(name: str) -> None:
    tier = TIERS[name]
    program = seccomp.build_single(tier.rules)
    always = {numbers()[each] for each in tier.always.split() if each in numbers()}
    sometimes = {numbers()[each] for each, _, _ in tier.values}
    names = {number: each for each, number in numbers().items()}
    for number in range(600):
        looks, seen = looks_at_arguments(program, number), outcome(program, number, (0,) * 6)
        wanted = (number in sometimes and number != CLONE3, number in always)
        assert (looks, not looks and seen == ALLOW) == wanted, f"{names.get(number)} {number}"
    for (call, index, fixed), values in tier.values.items():
        assert allowed_values(program, numbers()[call], index, fixed) == values, (call, index, fixed)


def looks_at_arguments(program: bytes, number: int) -> bool:
    """Whether the result depends on arguments: the number and the architecture are before them."""
    loads: list[int] = []
    outcome(program, number, (0,) * 6, loads=loads)
    return max(loads) >= 16


def allowed_values(program: bytes, number: int, index: int, fixed: tuple[int, ...]) -> set[int]:
    found = set()
    for value in FLAGS if (number, index) in ((CLONE, 0), (FCNTL, 2)) else TRIED:
        arguments = [*fixed, *[0] * (6 - len(fixed))]
        arguments[index] = value
        if outcome(program, number, tuple(arguments)) == ALLOW:
            found.add(value)
    return found


def test_unix_sockets_may_have_two_flags_and_nothing_else() -> None:
    program = seccomp.build_single(seccomp.Rules(unix_sockets=True))
    nonblocking, close_on_exec = 0x800, 0x80000
    for flags in range(32):
        is_allowed = outcome(program, SOCKET, (1, 1 | 1 << flags, 0, 0, 0, 0)) == ALLOW
        assert is_allowed == (1 << flags in (1, nonblocking, close_on_exec)), flags
    assert outcome(program, SOCKET, (1, 1 | nonblocking | close_on_exec, 0, 0, 0, 0)) == ALLOW
    assert outcome(program, SOCKET, (1 << 32 | 2, 1, 0, 0, 0, 0)) == ERRNO | errno.EPERM


@pytest.mark.parametrize("rest", [{"own_pid_only": True}, {"has_memory_group": False}])
@pytest.mark.parametrize("sockets", [{"unix_sockets": True}, {"tcp": True}], ids=["Unix", "TCP"])
def test_named_sockets_need_namespaces_and_a_memory_group(sockets: dict[str, bool], rest: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="need namespaces and a memory group"):
        seccomp.Rules(**sockets, **rest)


def test_tcp_suspends_connect_and_nothing_else() -> None:
    assert seccomp.build(seccomp.Rules()).connect == b""
    program = seccomp.build(seccomp.Rules(tcp=True)).connect
    seen = {outcome(program, number, (0,) * 6) for number in range(600) if number != CONNECT}
    assert (outcome(program, CONNECT, (0,) * 6), seen) == (NOTIFY, {ALLOW})
    assert outcome(program, CONNECT, (0,) * 6, I386) == KILL


@pytest.mark.parametrize(
    ("release", "is_enough"), [("5.8.18-generic", False), ("4.18.0", False), ("5.9.0", True), ("6.1.0-13-amd64", True)]
)
def test_suspending_calls_needs_a_kernel(monkeypatch: pytest.MonkeyPatch, release: str, is_enough: bool) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(pyseccomp, "get_api", lambda: 6)
    assert (seccomp.why_no_notifications() == "") is is_enough
    monkeypatch.setattr(pyseccomp, "get_api", lambda: 5)
    assert "libseccomp 2.5" in seccomp.why_no_notifications()


def test_calls_that_tcp_leaves_out_fail_as_if_they_did_not_fit() -> None:
    program = seccomp.build_single(seccomp.Rules(tcp=True))
    for name in ("sendfile", "splice", "tee"):
        assert outcome(program, numbers()[name], (0,) * 6) == ERRNO | errno.EINVAL
    assert outcome(program, SOCKET, (10, 1, 0, 0, 0, 0)) == ERRNO | errno.EAFNOSUPPORT
    for option in (7, 8):  # buffer sizes
        assert outcome(program, numbers()["setsockopt"], (3, 1, option, 0, 0, 0)) == ERRNO | 0


def test_fcntl_lock_calls_return_0_without_locking() -> None:
    for tier in TIERS.values():
        program = seccomp.build_single(tier.rules)
        for command in (6, 7):
            assert outcome(program, FCNTL, (3, command, 0, 0, 0, 0)) == ERRNO | 0


def calls(program: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """All calls; with many arguments where these matter."""
    chance = random.Random(6)
    words = [0, 1, 2, 3, 4, 16, 38, 47, 0x11, 0x10000, 0x3D0F00, 0x5401, 0x1200011, 1 << 32, (1 << 64) - 1]
    words += (
        [1 << bit for bit in range(32)] + [0x10000 | 1 << bit for bit in range(17, 32)] + [THREAD, THREAD | 1 << 28]
    )
    for number in range(480):
        if not looks_at_arguments(program, number):
            yield number, tuple(chance.getrandbits(64) for _ in range(6))
            continue
        for word in words:
            yield number, (word, chance.choice(words), chance.choice(words), 0, 0, 0)
        for _ in range(10):
            yield number, tuple(chance.choice([chance.choice(words), chance.getrandbits(64)]) for _ in range(6))


@pytest.mark.parametrize("rules", RULES, ids=RULE_NAMES)
def test_two_filters_equal_a_single_one(rules: seccomp.Rules) -> None:
    filters, one = seccomp.build(rules), seccomp.build_single(rules)
    allowed = 0
    for number, arguments in calls(one):
        seen, wanted = together(filters, number, arguments), outcome(one, number, arguments)
        assert seen == wanted, (number, [hex(each) for each in arguments], hex(seen), hex(wanted))
        allowed += wanted == ALLOW
    assert allowed > 200


@pytest.mark.parametrize("rules", RULES, ids=RULE_NAMES)
def test_calls_of_another_architecture_kill(rules: seccomp.Rules) -> None:
    filters = seccomp.build(rules)
    for architecture in (ARM, I386):
        assert together(filters, 1, (0,) * 6, architecture) == KILL
    assert together(filters, X32 | 1, (0,) * 6) == KILL


def test_zygote_can_spawn_boxes_and_boxes_cannot() -> None:
    filters = seccomp.build(seccomp.Rules())
    for number, first in ((MOUNT, 0), (SECCOMP, 1), (SETNS, 5), (CLONE, 0x20000011), (PRCTL_NUMBER, 47)):
        arguments = (first, 0, 0, 0, 0, 0)
        assert outcome(filters.zygote, number, arguments) == ALLOW
        assert together(filters, number, arguments) == ERRNO | errno.EPERM
    assert outcome(filters.zygote, CLONE3, (0,) * 6) == ALLOW
    assert together(filters, CLONE3, (0,) * 6) == ERRNO | errno.ENOSYS


def test_filter_with_own_pid_is_single() -> None:
    rules = seccomp.Rules(own_pid_only=True, can_fork=False)
    assert seccomp.build(rules) == seccomp.Filters(b"", seccomp.build_single(rules))
