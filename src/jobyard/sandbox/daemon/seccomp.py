"""The allow-list of system calls. libseccomp turns it into bytes that are loaded with one call.

A long filter takes the kernel some tenths of a millisecond to load, a process that is born with it nothing. So the
list is loaded by the zygote, longer by what it takes to make a member, and every member takes that away from itself.

What is not named answers EPERM; calls of another architecture kill. Left out on purpose, though containers commonly
allow them: sockets, keys, io_uring, ptrace and process_vm, mounts and namespaces, inotify, mknod, file handles, flock
(locks on shared files of /usr would carry messages between programs), fadvise and preadv2 (they empty the machine's
cache of files, and tell what others have read since), SysV and POSIX queues and shared memory.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# Stands for the program's own pid in the filter of tier C; the program's process puts the true one there.
OWN_PID: Final = 0x7FEDCBA9
_NEW_NAMESPACES: Final = 0x7E020000  # every CLONE_NEW* that clone() takes
_THREAD: Final = 0x00010000

_FILES = """
access chdir close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fchdir fdatasync fgetxattr
flistxattr fstat fstatfs fsync getcwd getdents getdents64 getxattr lgetxattr listxattr llistxattr lseek lstat
newfstatat open openat openat2 pread64 preadv pwrite64 pwritev pwritev2 read readlink readlinkat
readv sendfile stat statfs statx sync_file_range umask write writev pipe pipe2
"""
# Where there is no folder to write to, Landlock is all that holds files, and it does not look at some of these.
_CHANGES = """
chmod chown creat fallocate fchmod fchmodat fchown fchownat ftruncate futimesat lchown link linkat mkdir mkdirat
rename renameat renameat2 rmdir symlink symlinkat truncate unlink unlinkat utime utimensat utimes
"""
_MEMORY = """
brk madvise membarrier mincore mlock mlock2 mmap mprotect mremap msync munlock munmap pkey_alloc pkey_free
pkey_mprotect get_mempolicy map_shadow_stack
"""
# What these keep is in no process's address space: a pipe keeps a huge page for one byte of it. Only a group counts it.
_UNSEEN_MEMORY = "memfd_create splice tee vmsplice"
_PROCESS = """
arch_prctl exit exit_group futex futex_waitv get_robust_list getcpu getegid geteuid getgid getgroups getpgid getpgrp
getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid getuid restart_syscall rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_yield set_robust_list set_tid_address setpgid setsid sigaltstack sysinfo times uname wait4 waitid
pause capget
"""
_TIME = """
alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 poll ppoll
pselect6 select signalfd signalfd4
"""
# On a pair of connected sockets only, which event loops wake themselves with: there is no way to get another. Not
# sendmsg: sockets that were sent to each other outlive their process, and keep every file that was sent with them.
_PAIRS = "getpeername getsockname getsockopt recvfrom recvmsg recvmmsg sendto setsockopt shutdown"
_SIGNALS = "kill tgkill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal"
_SCHEDULING = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler setpriority"

# Not those that have the kernel send signals for us (SETOWN, SETSIG), nor leases and notices on shared files.
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032, 1033, 1034)
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_PRCTLS = (2, 3, 4, 8, 15, 16, 21, 23, 27, 29, 30, 35, 38, 39, 41, 42, 0x53564D41)
_PR_SET_PDEATHSIG, _PR_CAP_AMBIENT = 1, 47
# What it takes to make a member, beside what a program may do.
_SETUP = "capset mount seccomp sendmsg setns setresgid setresuid unshare"
_CORE, _RESOURCES = 4, 16


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the tier has to leave to the filter."""

    can_fork: bool = True
    can_execute: bool = True
    own_pid_only: bool = False
    can_change_files: bool = True
    has_memory_group: bool = True


class Filters(NamedTuple):
    """Programs for the kernel. What the one or the other forbids is forbidden."""

    zygote: bytes  # none where a member's must name its own pid: then that one is the whole list
    box: bytes


def build(rules: Rules) -> Filters:
    import pyseccomp as library  # noqa: PLC0415 it looks for libseccomp when imported, and says so where there is none

    if rules.own_pid_only:
        return Filters(b"", whole(rules))
    zygote = _allowed(library, rules)
    for name in (*_SETUP.split(), "clone", "clone3"):
        _allow(library, zygote, name)
    _with_values(library, zygote, "prctl", 0, (_PR_CAP_AMBIENT,))
    return Filters(_exported(zygote), _exported(_refused(library, rules)))


def whole(rules: Rules) -> bytes:
    """Both in one: what a program may do."""
    import pyseccomp as library  # noqa: PLC0415

    made = _allowed(library, rules)
    _clone(library, made, rules)
    return _exported(made)


def _new(library: Any, otherwise: Any) -> Any:
    made = library.SyscallFilter(otherwise)
    made.set_attr(library.Attr.ACT_BADARCH, library.KILL_PROCESS)
    return made


def _allowed(library: Any, rules: Rules) -> Any:
    """The list without clone."""
    made = _new(library, library.ERRNO(errno.EPERM))
    for name in _names(rules):
        _allow(library, made, name)
    _with_values(library, made, "ioctl", 1, _IOCTLS)
    _with_values(library, made, "fcntl", 1, _FCNTLS)
    prctls = _PRCTLS if rules.own_pid_only else (_PR_SET_PDEATHSIG, *_PRCTLS)
    _with_values(library, made, "prctl", 0, prctls)
    _limits(library, made, (0, OWN_PID) if rules.own_pid_only else (0,))
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        made.add_rule(
            library.ALLOW,
            "socketpair",
            library.Arg(0, library.EQ, socket.AF_UNIX),
            library.Arg(1, library.MASKED_EQ, 0xFF, kind),
        )
    if rules.own_pid_only:
        for name in ("kill", "tgkill"):
            _with_values(library, made, name, 0, (OWN_PID,))
        for name in _SCHEDULING.split()[:4]:
            _with_values(library, made, name, 0, (0,))
    return made


def _refused(library: Any, rules: Rules) -> Any:
    """What the zygote may do and a program may not."""
    made = _new(library, library.ALLOW)
    refuse = library.ERRNO(errno.EPERM)
    for name in _SETUP.split():
        made.add_rule(refuse, name)
    made.add_rule(refuse, "prctl", _is(library, 0, _PR_CAP_AMBIENT))
    made.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    for bit in range(32):
        if _NEW_NAMESPACES >> bit & 1:
            made.add_rule(refuse, "clone", library.Arg(0, library.MASKED_EQ, 1 << bit, 1 << bit))
    if not rules.can_fork:
        made.add_rule(refuse, "clone", library.Arg(0, library.MASKED_EQ, _THREAD, 0))
    return made


def _names(rules: Rules) -> list[str]:
    text = " ".join((_FILES, _MEMORY, _PROCESS, _TIME, _WAITING, _PAIRS))
    if not rules.own_pid_only:
        text += f" {_SIGNALS} {_SCHEDULING}"
    names = text.split()
    if rules.can_change_files:
        names += _CHANGES.split()
    if rules.has_memory_group:
        names += _UNSEEN_MEMORY.split()
    if rules.can_execute:
        names += ["execve", "execveat"]
    if rules.can_fork:
        names += ["vfork", "fork"]
    return names


def _allow(library: Any, made: Any, name: str) -> None:
    try:
        library.resolve_syscall(library.Arch.NATIVE, name)
        made.add_rule(library.ALLOW, name)
    except (ValueError, OSError):
        return  # another architecture, or a libseccomp that is older than the call


def _clone(library: Any, made: Any, rules: Rules) -> None:
    """Threads always; processes where the tier can hold them; new namespaces never."""
    # The C library falls back to clone(), whose flags a filter can read.
    made.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    must = 0 if rules.can_fork else _THREAD
    made.add_rule(library.ALLOW, "clone", library.Arg(0, library.MASKED_EQ, _NEW_NAMESPACES | must, must))


def _limits(library: Any, made: Any, pids: tuple[int, ...]) -> None:
    """One's own, but for the size of a core: at 1 no helper of the host is called for it, at 0 one is."""
    for which in range(_RESOURCES):
        if which != _CORE:
            made.add_rule(library.ALLOW, "setrlimit", _is(library, 0, which))
        for pid in pids:
            words = [_is(library, 0, pid), _is(library, 1, which)]
            if which == _CORE:
                words.append(library.Arg(2, library.EQ, 0))
            made.add_rule(library.ALLOW, "prlimit64", *words)


def _is(library: Any, index: int, value: int) -> Any:
    """The kernel reads 32 bits of these; what a program leaves in the upper half must not matter."""
    return library.Arg(index, library.MASKED_EQ, 0xFFFFFFFF, value)


def _with_values(library: Any, made: Any, name: str, index: int, values: tuple[int, ...]) -> None:
    for value in values:
        made.add_rule(library.ALLOW, name, _is(library, index, value))


def _exported(made: Any) -> bytes:
    descriptor = os.memfd_create("filter")
    with os.fdopen(descriptor, "w+b") as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()
