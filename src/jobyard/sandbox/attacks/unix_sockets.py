"""Attacks by programs that may create Unix stream sockets: other sockets, uncounted memory, descriptors in flight."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import (
    NO_MEMORY,
    REFUSED,
    TIMED_OUT,
    Attack,
    Expected,
    Layer,
    with_attempt,
    with_syscall,
)
from jobyard.sandbox.protocol import Limits, RunVerdict

OTHERS = [
    "tcp",
    "tcp6",
    "udp",
    "datagram",
    "packets",
    "raw",
    "raw4",
    "packet",
    "netlink",
    "vsock",
    "protocol",
    "family",
    "hidden",
    "type",
]
OPTIONS = ["filter", "credentials", "timestamp", "level"]

ATTACKS = (
    Attack(
        166,
        "Unix sockets: every other kind",
        with_syscall("""\
import socket
def make(*given):
    socket.socket(*given).close()

attempt("tcp", make, socket.AF_INET, socket.SOCK_STREAM)
attempt("tcp6", make, socket.AF_INET6, socket.SOCK_STREAM)
attempt("udp", make, socket.AF_INET, socket.SOCK_DGRAM)
attempt("datagram", make, socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("packets", make, socket.AF_UNIX, socket.SOCK_SEQPACKET)
attempt("raw", make, socket.AF_UNIX, socket.SOCK_RAW)
attempt("raw4", make, socket.AF_INET, socket.SOCK_RAW, 1)
attempt("packet", make, 17, socket.SOCK_RAW)
attempt("netlink", make, socket.AF_NETLINK, socket.SOCK_RAW, 0)
attempt("vsock", make, 40, socket.SOCK_STREAM)
attempt("protocol", make, socket.AF_UNIX, socket.SOCK_STREAM, 1)
# The kernel reads 32 bits of each argument; the filter must not read others.
attempt("family", syscall, 41, 198, 1 << 32 | socket.AF_INET, socket.SOCK_STREAM, 0)
attempt("hidden", syscall, 41, 198, socket.AF_UNIX, 1 << 32 | socket.SOCK_DGRAM, 0)
attempt("type", syscall, 41, 198, socket.AF_UNIX, 1 << 20 | socket.SOCK_STREAM, 0)
attempt("own", make, socket.AF_UNIX, socket.SOCK_STREAM)
"""),
        Expected(prints={**dict.fromkeys(OTHERS, REFUSED), "own": "DONE None"}),
        without={Layer.SECCOMP: ()},
        needs_unix_sockets=True,
        with_tcp=(
            Expected(
                prints={
                    **dict.fromkeys(OTHERS, REFUSED),
                    "own": "DONE None",
                    "tcp": "DONE None",
                    "tcp6": "EAFNOSUPPORT",
                    "family": "DONE [0-9]+",
                }
            ),
        ),
    ),
    Attack(
        167,
        "Unix sockets: memory in connections that are never accepted",
        """\
import os, socket
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("\\0full")
    listener.listen(1 << 30)
    data = b"x" * 65536
    for number in range(4000):
        with socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False)
            try:
                one.connect("\\0full")
                while True:
                    one.send(data)
            except BlockingIOError:
                pass  # full; what was sent stays in the queue of the listener
print("held 256 MB: ESCAPED")
""",
        NO_MEMORY,
        without={Layer.SECCOMP: ()},
        limits=Limits(time_seconds=10, memory_mb=64),
        needs_unix_sockets=True,
        with_tcp=(Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), stderr="Errno 105"),),  # too many connections
        with_bystander=True,
    ),
    Attack(
        168,
        "Unix sockets: memory in the queues of many processes",
        """\
import os, socket, time
for _ in range(20):
    if os.fork() == 0:
        break
pairs = []
try:
    while True:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\\0{os.getpid()}-{len(pairs)}")
        listener.listen(1)
        client = socket.socket(socket.AF_UNIX)
        client.connect(listener.getsockname())
        client.setblocking(False)
        pairs.append((listener, client))
        try:
            while True:
                client.send(b"x")  # a message of one byte costs the kernel most
        except BlockingIOError:
            pass
except OSError:
    pass
time.sleep(30)
""",
        NO_MEMORY,
        without={Layer.SECCOMP: ()},
        limits=Limits(time_seconds=3, memory_mb=32),
        needs_unix_sockets=True,
        with_tcp=(TIMED_OUT,),  # too many connections
        with_bystander=True,
    ),
    Attack(
        169,
        "Unix sockets: descriptors in flight and options",
        with_attempt("""\
import array, os, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("own")
listener.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("own")
server, _ = listener.accept()
descriptors = array.array("i", [client.fileno(), server.fileno()])
attempt("rights", client.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
attempt("plain", client.sendmsg, [b"x"])
attempt("filter", client.setsockopt, socket.SOL_SOCKET, 26, b"\\0" * 16)
attempt("credentials", client.setsockopt, socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
attempt("timestamp", client.setsockopt, socket.SOL_SOCKET, 29, 1)
attempt("level", client.setsockopt, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
attempt("send", client.send, b"x")
"""),
        Expected(prints={**dict.fromkeys(["rights", "plain", *OPTIONS], REFUSED), "send": "DONE 1"}),
        without={Layer.SECCOMP: ()},
        needs_unix_sockets=True,
        with_tcp=(
            Expected(
                prints={
                    **dict.fromkeys(["rights", "plain", *OPTIONS], REFUSED),
                    "level": "EOPNOTSUPP|ENOTSUP",
                    "send": "DONE 1",
                }
            ),
        ),
    ),
)
