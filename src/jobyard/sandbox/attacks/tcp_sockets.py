"""Attacks by programs that may use TCP: more connections than allowed, other ways to make one, uncounted memory."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import REFUSED, TIMED_OUT, Attack, Expected, Layer, with_attempt, with_syscall
from jobyard.sandbox.protocol import Limits

# A program cannot have more connections than sockets when it makes the last one: 16 in the tests, at most 128.
FEW = "[1-9]|[1-9][0-9]|1[01][0-9]|12[0-8]"
LIMIT = Limits(time_seconds=20, memory_mb=128, files_open=512)
COUNT = """\
import errno, os, socket, sys, threading, time
def listener():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(4096)
    return made

def connect(address, kept):
    one = socket.socket()
    kept.append(one)
    one.connect(address)
    return one

def established():
    lines = open("/proc/self/net/tcp").read().splitlines()[1:]
    return sum(line.split()[3] in ("01", "08", "04", "05") for line in lines) // 2

"""
OTHER_WAYS = ["fast open", "fast open option", "zero copy", "repair", "splice", "tee", "sendfile", "receive mapped"]

ATTACKS = (
    Attack(
        175,
        "TCP: as many connections as possible",
        COUNT
        + """\
server, kept, refused = listener(), [], None
while refused is None and len(kept) < 400:
    try:
        connect(server.getsockname(), kept)
    except OSError as error:
        refused = errno.errorcode[error.errno]
print("refused:", refused)
print("connections:", len(kept) - 1)
""",
        Expected(prints={"refused": "ENOBUFS", "connections": FEW}),
        without={Layer.SECCOMP: ()},
        limits=LIMIT,
        needs_tcp=True,
    ),
    Attack(
        176,
        "TCP: connections closed with data in their queues",
        COUNT
        + """\
server, kept, made, held = listener(), [], 0, []
try:
    for made in range(400):
        one = connect(server.getsockname(), kept)
        other, _ = server.accept()
        held.append(other)
        one.send(b"x")
        other.send(b"x")
        kept.pop().close()  # the other end keeps what it was sent, without a connection
    refused = None
except OSError as error:
    refused = errno.errorcode[error.errno]
print("refused:", refused)
print("connections:", made)
""",
        Expected(prints={"refused": "ENOBUFS", "connections": FEW}),
        without={Layer.SECCOMP: ()},
        limits=LIMIT,
        needs_tcp=True,
    ),
    Attack(
        177,
        "TCP: one socket that connects again and again",
        COUNT
        + """\
import ctypes
server, made, refused = listener(), 0, None
libc = ctypes.CDLL(None, use_errno=True)
one = socket.socket()
try:
    for made in range(400):
        one.connect(server.getsockname())
        one.send(b"x")
        if libc.connect(one.fileno(), ctypes.create_string_buffer(16), 16) < 0:  # AF_UNSPEC: disconnects
            raise OSError(ctypes.get_errno(), "disconnect")
except OSError as error:
    refused = errno.errorcode[error.errno]
print("connections:", made if refused else f"ESCAPED {made}")
""",
        Expected(prints={"connections": FEW}),
        without={Layer.SECCOMP: ()},
        limits=LIMIT,
        needs_tcp=True,
    ),
    Attack(
        178,
        "TCP: connections of many processes and threads at once",
        COUNT
        + """\
server = listener()
def rush():
    kept = []
    while True:
        try:
            connect(server.getsockname(), kept).send(b"x")
        except OSError:
            if len(kept) > 3:
                kept.pop(0).close()

children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        for _ in range(3):
            threading.Thread(target=rush, daemon=True).start()
        time.sleep(60)
    children.append(child)
most, until = 0, time.monotonic() + 1.5
while time.monotonic() < until:
    most = max(most, established())
for child in children:
    os.kill(child, 9)
print("most:", most if most <= 128 else f"ESCAPED {most}")
""",
        Expected(prints={"most": FEW}),
        without={Layer.SECCOMP: ()},
        limits=LIMIT,
        needs_tcp=True,
        with_bystander=True,
    ),
    Attack(
        179,
        "TCP: connections that nothing accepts yet",
        COUNT
        + """\
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(0)
kept = []
try:
    for _ in range(400):
        one = socket.socket()
        one.setblocking(False)
        kept.append(one)
        try:
            one.connect(server.getsockname())
        except BlockingIOError:
            pass
except OSError as error:
    print("refused:", errno.errorcode[error.errno])
server.listen(4096)
server.settimeout(4)
accepted = []
try:
    while len(accepted) < 400:
        accepted.append(server.accept()[0])
except OSError:
    pass
print("connections:", len(accepted))
""",
        Expected(prints={"refused": "ENOBUFS", "connections": FEW}),
        without={Layer.SECCOMP: ()},
        limits=LIMIT,
        needs_tcp=True,
    ),
    Attack(
        180,
        "TCP: connections and buffers by other calls",
        with_syscall("""\
import os, socket
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(5)
one = socket.socket()
def write():
    os.write(one.fileno(), b"x")

attempt("fast open", one.sendto, b"x", 0x20000000, server.getsockname())
attempt("fast open option", one.setsockopt, socket.IPPROTO_TCP, 30, 1)
attempt("repair", one.setsockopt, socket.IPPROTO_TCP, 19, 1)
attempt("filter", one.setsockopt, socket.SOL_SOCKET, 26, b"\\0" * 16)
one.connect(server.getsockname())
other, _ = server.accept()
attempt("zero copy", one.sendto, b"x", 0x4000000, server.getsockname())
attempt("receive mapped", one.getsockopt, socket.IPPROTO_TCP, 35, 64)
other.send(b"x" * 100)
reading, writing = os.pipe()
attempt("splice", os.splice, one.fileno(), writing, 100) if hasattr(os, "splice") else print("splice: EINVAL")
attempt("tee", syscall, 276, 77, reading, writing, 1, 0)
attempt("sendfile", os.sendfile, one.fileno(), os.open("/usr/bin/python3", os.O_RDONLY), 0, 100)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
sizes = [one.getsockopt(socket.SOL_SOCKET, which) for which in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
print("buffers:", "small" if max(sizes) <= 8192 else f"ESCAPED {sizes}")
"""),
        Expected(
            prints={**dict.fromkeys([*OTHER_WAYS, "filter"], f"{REFUSED}|EINVAL"), "buffers": "small"},
        ),
        without={Layer.SECCOMP: ()},
        needs_tcp=True,
    ),
    Attack(
        181,
        "TCP: other protocols and addresses",
        with_attempt("""\
import socket
def make(*given):
    socket.socket(*given).close()

def connect(address):
    with socket.socket() as one:
        one.settimeout(1)
        one.connect(address)
    print("connected: ESCAPED")

attempt("UDP", make, socket.AF_INET, socket.SOCK_DGRAM)
attempt("MPTCP", make, socket.AF_INET, socket.SOCK_STREAM, 262)
attempt("SCTP", make, socket.AF_INET, socket.SOCK_STREAM, 132)
attempt("raw", make, socket.AF_INET, socket.SOCK_RAW, 6)
attempt("IPv6", make, socket.AF_INET6, socket.SOCK_STREAM)
attempt("host", connect, ("127.0.0.1", @PORT@))
attempt("metadata", connect, ("169.254.169.254", 80))
"""),
        Expected(
            prints={
                **dict.fromkeys(["UDP", "MPTCP", "SCTP", "raw"], REFUSED),
                "IPv6": "EAFNOSUPPORT",
                "host": "ECONNREFUSED",
                "metadata": "ENETUNREACH",
            }
        ),
        without={Layer.SECCOMP: ()},
        needs_tcp=True,
    ),
    Attack(
        182,
        "TCP: a listener, and connect() without end",
        COUNT
        + """\
for _ in range(8):
    if os.fork() == 0:
        break
one = socket.socket()
while True:
    try:
        one.connect(("127.0.0.1", 1))
    except OSError:
        pass
""",
        TIMED_OUT,
        without={Layer.SECCOMP: ()},
        limits=Limits(time_seconds=1),
        needs_tcp=True,
        with_bystander=True,
    ),
    Attack(
        183,
        "TCP: bytes that each keep the memory from which they were sent",
        COUNT
        + """\
server, pairs = listener(), []
kept = []
try:
    while len(pairs) < 400:
        one = connect(server.getsockname(), kept)
        other, _ = server.accept()
        for end in (one, other):
            end.setblocking(False)
        pairs.append((one, other))
except OSError as error:
    print("refused:", errno.errorcode[error.errno])
sender, receiver = pairs.pop()
def use_up(left):
    while left > 0:
        try:
            left -= sender.send(bytes(min(left, 2000)))
        except BlockingIOError:
            pass
        try:
            while receiver.recv(65536):
                pass
        except BlockingIOError:
            pass

for _ in range(100):
    for pair in pairs:
        for end in pair:
            try:
                end.send(b"1")
                use_up(32767)
            except BlockingIOError:
                pass
print("pairs:", len(pairs))
""",
        Expected(prints={"refused": "ENOBUFS", "pairs": FEW}),
        without={Layer.SECCOMP: ()},
        limits=Limits(time_seconds=20, files_open=512, memory_mb=64),
        needs_tcp=True,
    ),
)
