"""The seccomp allow-list, compiled by libseccomp.

Loading a long filter takes the kernel some tenths of a millisecond; inheriting one takes nothing. So the zygote loads
the list, extended by the calls that set up a box, and each box loads a short filter that removes those again.

Other calls fail with EPERM; calls of another architecture kill the process. Left out on purpose, though containers
commonly allow them: sockets (but see _NAMED_SOCKETS), keys, io_uring, ptrace and process_vm, mounts and namespaces,
inotify, mknod, file handles, locks (no limit counts their memory, and on shared files in /usr they would carry messages
between programs), fadvise and preadv2 (they evict and probe the page cache, which shows what others have read), SysV
and POSIX queues and shared memory.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# Placeholder for the program's own pid in the filter of tier C; the program's process replaces it.
OWN_PID: Final = 0x7FEDCBA9
_NEW_NAMESPACES: Final = 0x7E020000  # every CLONE_NEW* flag of clone()
_CLONE_PARENT: Final = 0x00008000  # such a child belongs to the zygote and would keep the run from ending
# Without CLONE_FILES a thread has its own descriptors, as many as the process: only a cgroup limits what they hold.
_THREAD: Final = 0x00010000 | 0x00000400

_FILES = """
access chdir close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fchdir fdatasync fstat fstatfs fsync
getcwd getdents getdents64 lseek lstat newfstatat open openat openat2 pread64 preadv pwrite64 pwritev pwritev2 read
readv sendfile stat statfs statx sync_file_range umask write writev pipe pipe2
"""
# Landlock does not cover these: without a root of its own a program could use them on files of the host.
_LINKS = "fgetxattr flistxattr getxattr lgetxattr listxattr llistxattr readlink readlinkat"
# Without a writable folder only Landlock protects files, and it does not cover some of these.
_CHANGES = """
chmod chown creat fallocate fchmod fchmodat fchown fchownat ftruncate futimesat lchown link linkat mkdir mkdirat
rename renameat renameat2 rmdir symlink symlinkat truncate unlink unlinkat utime utimensat utimes
"""
_MEMORY = """
brk madvise membarrier mincore mlock mlock2 mmap mprotect mremap msync munlock munmap pkey_alloc pkey_free
pkey_mprotect get_mempolicy map_shadow_stack
"""
# These hold memory outside of all address spaces: a pipe pins a huge page for one byte of it. Only a cgroup counts it.
_UNACCOUNTED_MEMORY = "memfd_create splice tee vmsplice"
_PROCESS = """
arch_prctl exit exit_group futex futex_waitv getcpu getegid geteuid getgid getgroups getpgrp getpid getppid getrandom
getresgid getresuid getrlimit getrusage gettid getuid restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max sched_get_priority_min sched_yield set_robust_list
set_tid_address setpgid setsid sigaltstack sysinfo times uname wait4 waitid pause capget
"""
# These take a process id: without a pid namespace, only the program's own.
_OF_PROCESS = """
get_robust_list getpgid getsid sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
"""
_TIME = """
alarm getitimer gettimeofday nanosleep setitimer time timer_delete timer_getoverrun timer_gettime timer_settime
timerfd_create timerfd_gettime timerfd_settime
"""
# These take a clock, which may be the CPU clock of any process: without a pid namespace, only the usual ones and -6 and
# -2, which are the program's own.
_OF_CLOCK = "clock_getres clock_gettime clock_nanosleep timer_create"
_CLOCKS = (*range(12), 0xFFFFFFFA, 0xFFFFFFFE)
_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 poll ppoll
pselect6 select signalfd signalfd4
"""
# For socket pairs, with which event loops wake themselves; no other sockets can be created. Not sendmsg: sockets that
# are sent over each other outlive their process and keep every file that was sent with them open.
_PAIRS = "getpeername getsockname getsockopt recvfrom recvmsg recvmmsg sendto shutdown"
# Above all not SO_ATTACH_FILTER: the memory for its machine code is limited for the whole machine.
_TIMEOUTS = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)
_BUFFERS = (socket.SO_RCVBUF, socket.SO_SNDBUF)  # only a cgroup counts them
# For Unix stream sockets and TCP, options of the operator. Not datagrams: they stay queued when their sender has closed
# its socket.
_NAMED_SOCKETS = "accept accept4 bind connect listen"
# Each byte in a buffer of TCP can keep the 32 kB from which it was sent, which no limit counts. So the number of
# connections is limited, and the buffers must not go elsewhere: into pipes, or by getsockopt() (TCP_ZEROCOPY_RECEIVE)
# into the address space.
_KEEP_BUFFERS = "sendfile splice tee"
_MSG_FASTOPEN, _MSG_ZEROCOPY = 0x20000000, 0x4000000
_STREAM_OPTIONS = (socket.SO_KEEPALIVE, socket.SO_LINGER)
_TCP_OPTIONS = (socket.TCP_NODELAY, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
_TCP_STATE = (socket.TCP_MAXSEG, socket.TCP_INFO)
_NOTIFICATIONS_API = 6  # of libseccomp: notifications that let the call go on
_NOTIFICATIONS_KERNEL = (5, 9)  # says when the last process with a filter has ended
_SOCKET_FLAGS = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_SIGNALS = "kill tgkill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal"
_SCHEDULING = "sched_setaffinity sched_setattr sched_setparam sched_setscheduler setpriority"

# Without those that make the kernel send signals (SETOWN, SETSIG), and those for leases and notifications on files.
_FCNTLS = (0, 1, 2, 3, 5, 1030, 1032, 1033, 1034)
_F_SETFL, _F_SETPIPE_SZ = 4, 1031
# F_SETLK and F_SETLKW succeed and do nothing: the kernel does not limit locks, SQLite fails without them, and a program
# shares its files with no other.
_LOCKS = (6, 7)
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_PRCTLS = (2, 3, 4, 8, 15, 16, 21, 23, 27, 29, 30, 35, 38, 39, 41, 42, 0x53564D41)
_PR_SET_PDEATHSIG, _PR_CAP_AMBIENT = 1, 47
# Calls that set up a box, besides those that a program may use.
_SETUP = "capset mount seccomp sendmsg setns setresgid setresuid unshare"
_CORE, _RESOURCES = 4, 16


@dataclass(frozen=True, kw_only=True)
class Rules:
    can_fork: bool = True
    can_execute: bool = True
    own_pid_only: bool = False
    can_change_files: bool = True
    has_memory_group: bool = True
    unix_sockets: bool = False
    tcp: bool = False

    def __post_init__(self) -> None:
        if (self.unix_sockets or self.tcp) and (self.own_pid_only or not self.has_memory_group):
            raise ValueError("named sockets need namespaces and a memory group")


class Filters(NamedTuple):
    """Compiled filters. A call that either of them rejects is rejected."""

    zygote: bytes  # empty where the box's filter contains its own pid: then that filter is complete
    box: bytes
    connect: bytes = b""  # suspends connect(), where programs may use TCP


def build(rules: Rules) -> Filters:
    import pyseccomp as library  # noqa: PLC0415 importing it fails where libseccomp is missing

    if rules.own_pid_only:
        return Filters(b"", build_single(rules))
    zygote = _base_filter(library, rules)
    for name in (*_SETUP.split(), "clone", "clone3"):
        _allow(library, zygote, name)
    _allow_values(library, zygote, "prctl", 0, (_PR_CAP_AMBIENT,))
    connect = _new(library, library.ALLOW)
    connect.add_rule(library.NOTIFY, "connect")
    return Filters(_export(zygote), _export(_box_filter(library, rules)), _export(connect) if rules.tcp else b"")


def why_no_notifications() -> str:
    """Why a filter cannot suspend calls here; empty if it can."""
    import pyseccomp as library  # noqa: PLC0415

    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    kernel = tuple(map(int, numbers.groups())) if numbers else ()
    if library.get_api() >= _NOTIFICATIONS_API and kernel >= _NOTIFICATIONS_KERNEL:
        return ""
    return "suspending system calls needs Linux 5.9 and libseccomp 2.5"


def build_single(rules: Rules) -> bytes:
    """Build one filter that equals both together."""
    import pyseccomp as library  # noqa: PLC0415

    rules_filter = _base_filter(library, rules)
    _clone(library, rules_filter, rules)
    return _export(rules_filter)


def _new(library: Any, default: Any) -> Any:
    rules_filter = library.SyscallFilter(default)
    rules_filter.set_attr(library.Attr.ACT_BADARCH, library.KILL_PROCESS)
    return rules_filter


def _base_filter(library: Any, rules: Rules) -> Any:
    """The allow-list without clone."""
    rules_filter = _new(library, library.ERRNO(errno.EPERM))
    for name in _names(rules):
        _allow(library, rules_filter, name)
    _allow_values(library, rules_filter, "ioctl", 1, _IOCTLS)
    _descriptor_flags(library, rules_filter, rules)
    buffers = _BUFFERS if rules.has_memory_group and not rules.tcp else ()
    for option in (*_TIMEOUTS, *buffers):
        _allow_option(library, rules_filter, "setsockopt", socket.SOL_SOCKET, option)
    prctls = _PRCTLS if rules.own_pid_only else (_PR_SET_PDEATHSIG, *_PRCTLS)
    _allow_values(library, rules_filter, "prctl", 0, prctls)
    _limits(library, rules_filter, (0, OWN_PID) if rules.own_pid_only else (0,))
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        rules_filter.add_rule(
            library.ALLOW,
            "socketpair",
            library.Arg(0, library.EQ, socket.AF_UNIX),
            library.Arg(1, library.MASKED_EQ, 0xFF, kind),
        )
    if rules.unix_sockets:
        _unix_sockets(library, rules_filter)
    if rules.tcp:
        _tcp(library, rules_filter)
    if rules.unix_sockets or rules.tcp:
        # Servers set it before they bind; it has no effect on a Unix socket.
        _allow_option(library, rules_filter, "setsockopt", socket.SOL_SOCKET, socket.SO_REUSEADDR)
    if rules.own_pid_only:
        for name in ("kill", "tgkill"):
            _allow_values(library, rules_filter, name, 0, (OWN_PID,))
        for name in _SCHEDULING.split()[:4]:
            _allow_values(library, rules_filter, name, 0, (0,))
        for name in _OF_PROCESS.split():
            _allow_values(library, rules_filter, name, 0, (0, OWN_PID))
        for name in _OF_CLOCK.split():
            _allow_values(library, rules_filter, name, 0, _CLOCKS)
        for pid in (0, OWN_PID):
            rules_filter.add_rule(library.ALLOW, "getpriority", _equals(library, 0, 0), _equals(library, 1, pid))
    return rules_filter


def _unix_sockets(library: Any, rules_filter: Any) -> None:
    """Allow sockets with a name. The other calls find only sockets that this one allows, because no others exist."""
    without_flags = 0xFFFFFFFF & ~_SOCKET_FLAGS
    kind = library.Arg(1, library.MASKED_EQ, without_flags, socket.SOCK_STREAM)
    rules_filter.add_rule(library.ALLOW, "socket", _equals(library, 0, socket.AF_UNIX), kind, _equals(library, 2, 0))


def _tcp(library: Any, rules_filter: Any) -> None:
    """Allow TCP over IPv4, and nothing that keeps its buffers elsewhere or makes a connection without connect()."""
    without_flags = 0xFFFFFFFF & ~_SOCKET_FLAGS
    kind = library.Arg(1, library.MASKED_EQ, without_flags, socket.SOCK_STREAM)
    for protocol in (0, socket.IPPROTO_TCP):
        family = _equals(library, 0, socket.AF_INET)
        rules_filter.add_rule(library.ALLOW, "socket", family, kind, _equals(library, 2, protocol))
    refuse = library.ERRNO(errno.EAFNOSUPPORT)  # as on a machine without IPv6: servers then listen at IPv4 only
    rules_filter.add_rule(refuse, "socket", _equals(library, 0, socket.AF_INET6))
    no_connection = library.Arg(3, library.MASKED_EQ, _MSG_FASTOPEN | _MSG_ZEROCOPY, 0)
    rules_filter.add_rule(library.ALLOW, "sendto", no_connection)
    for option in _STREAM_OPTIONS:
        _allow_option(library, rules_filter, "setsockopt", socket.SOL_SOCKET, option)
    for option in _TCP_OPTIONS:
        _allow_option(library, rules_filter, "setsockopt", socket.IPPROTO_TCP, option)
    for option in _BUFFERS:  # a larger buffer keeps more; programs that ask for one work without it
        level = _equals(library, 1, socket.SOL_SOCKET)
        rules_filter.add_rule(library.ERRNO(0), "setsockopt", level, _equals(library, 2, option))
    rules_filter.add_rule(library.ALLOW, "getsockopt", _equals(library, 1, socket.SOL_SOCKET))
    for option in (*_TCP_OPTIONS, *_TCP_STATE):
        _allow_option(library, rules_filter, "getsockopt", socket.IPPROTO_TCP, option)
    for name in _KEEP_BUFFERS.split():  # programs then copy the data themselves
        rules_filter.add_rule(library.ERRNO(errno.EINVAL), name)


def _allow_option(library: Any, rules_filter: Any, name: str, level: int, option: int) -> None:
    rules_filter.add_rule(library.ALLOW, name, _equals(library, 1, level), _equals(library, 2, option))


def _descriptor_flags(library: Any, rules_filter: Any, rules: Rules) -> None:
    _allow_values(library, rules_filter, "fcntl", 1, _FCNTLS)
    # O_DIRECT would divide a pipe into packets of a byte, each of which costs the daemon a call to read.
    no_packets = library.Arg(2, library.MASKED_EQ, os.O_DIRECT, 0)
    rules_filter.add_rule(library.ALLOW, "fcntl", _equals(library, 1, _F_SETFL), no_packets)
    if rules.has_memory_group:
        _allow_values(library, rules_filter, "fcntl", 1, (_F_SETPIPE_SZ,))
    for command in _LOCKS:
        rules_filter.add_rule(library.ERRNO(0), "fcntl", _equals(library, 1, command))


def _box_filter(library: Any, rules: Rules) -> Any:
    """Reject what the zygote may do and a program may not."""
    rules_filter = _new(library, library.ALLOW)
    refuse = library.ERRNO(errno.EPERM)
    for name in _SETUP.split():
        rules_filter.add_rule(refuse, name)
    rules_filter.add_rule(refuse, "prctl", _equals(library, 0, _PR_CAP_AMBIENT))
    rules_filter.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    for bit in range(32):
        if (_NEW_NAMESPACES | _CLONE_PARENT) >> bit & 1:
            rules_filter.add_rule(refuse, "clone", library.Arg(0, library.MASKED_EQ, 1 << bit, 1 << bit))
    if not rules.can_fork:
        for bit in range(32):
            if _THREAD >> bit & 1:
                rules_filter.add_rule(refuse, "clone", library.Arg(0, library.MASKED_EQ, 1 << bit, 0))
    return rules_filter


def _names(rules: Rules) -> list[str]:
    text = " ".join((_FILES, _MEMORY, _PROCESS, _TIME, _WAITING, _PAIRS))
    if not rules.own_pid_only:
        text += f" {_LINKS} {_OF_PROCESS} {_OF_CLOCK} getpriority {_SIGNALS} {_SCHEDULING}"
    names = text.split()
    if rules.can_change_files:
        names += _CHANGES.split()
    if rules.has_memory_group:
        names += _UNACCOUNTED_MEMORY.split()
    if rules.unix_sockets or rules.tcp:
        names += _NAMED_SOCKETS.split()
    if rules.tcp:
        limited = {"getsockopt", "sendto", *_KEEP_BUFFERS.split()}
        names = [name for name in names if name not in limited]
    if rules.can_execute:
        names += ["execve", "execveat"]
    if rules.can_fork:
        names += ["vfork", "fork"]
    return names


def _allow(library: Any, rules_filter: Any, name: str) -> None:
    try:
        library.resolve_syscall(library.Arch.NATIVE, name)
        rules_filter.add_rule(library.ALLOW, name)
    except (ValueError, OSError):
        return  # unknown on this architecture or to this libseccomp


def _clone(library: Any, rules_filter: Any, rules: Rules) -> None:
    """Allow threads always, processes where the tier can contain them, new namespaces and foreign parents never."""
    # The C library falls back to clone(), whose flags a filter can read, unlike those of clone3().
    rules_filter.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    must = 0 if rules.can_fork else _THREAD
    mask = _NEW_NAMESPACES | _CLONE_PARENT | must
    rules_filter.add_rule(library.ALLOW, "clone", library.Arg(0, library.MASKED_EQ, mask, must))


def _limits(library: Any, rules_filter: Any, pids: tuple[int, ...]) -> None:
    """Allow lowering of own limits, except RLIMIT_CORE: at 1 the host starts no core dump helper, at 0 it does."""
    for which in range(_RESOURCES):
        if which != _CORE:
            rules_filter.add_rule(library.ALLOW, "setrlimit", _equals(library, 0, which))
        for pid in pids:
            words = [_equals(library, 0, pid), _equals(library, 1, which)]
            if which == _CORE:
                words.append(library.Arg(2, library.EQ, 0))
            rules_filter.add_rule(library.ALLOW, "prlimit64", *words)


def _equals(library: Any, index: int, value: int) -> Any:
    """Compare 32 bits only: the kernel ignores the upper half, so a program could hide a value with it."""
    return library.Arg(index, library.MASKED_EQ, 0xFFFFFFFF, value)


def _allow_values(library: Any, rules_filter: Any, name: str, index: int, values: tuple[int, ...]) -> None:
    for value in values:
        rules_filter.add_rule(library.ALLOW, name, _equals(library, index, value))


def _export(rules_filter: Any) -> bytes:
    descriptor = os.memfd_create("filter")
    with os.fdopen(descriptor, "w+b") as file:
        rules_filter.export_bpf(file)
        file.seek(0)
        return file.read()
