"""Attacks through the network: loopback services, cloud metadata, other kinds of sockets."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import REFUSED, UNREACHED, Attack, Expected, Layer, with_attempt

CONNECT = with_attempt("""\
import socket
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(1)
        one.connect(address)
        one.send(b"jobyard-attack")
    print("connected: ESCAPED")

""")
CLOSED = f"{REFUSED}|EAFNOSUPPORT"

ATTACKS = (
    Attack(
        25,
        "TCP connection to a loopback service",
        CONNECT
        + """\
attempt("IPv4", connect, socket.AF_INET, ("127.0.0.1", @PORT@))
attempt("IPv6", connect, socket.AF_INET6, ("::1", @PORT@))
""",
        Expected(prints={"IPv4": CLOSED, "IPv6": CLOSED}),
        without={Layer.SECCOMP: (Expected(prints={"IPv4": UNREACHED, "IPv6": f"{UNREACHED}|{CLOSED}"}),)},
        with_tcp=(Expected(prints={"IPv4": "ECONNREFUSED", "IPv6": "EAFNOSUPPORT"}),),
    ),
    Attack(
        26,
        "UDP to the cloud metadata service",
        CONNECT
        + """\
attempt("metadata", connect, socket.AF_INET, ("169.254.169.254", 80), socket.SOCK_DGRAM)
attempt("loopback", connect, socket.AF_INET, ("127.0.0.1", @UDP_PORT@), socket.SOCK_DGRAM)
""",
        Expected(prints={"metadata": CLOSED, "loopback": CLOSED}),
        without={Layer.SECCOMP: (Expected(prints={"metadata": UNREACHED, "loopback": UNREACHED}),)},
    ),
    Attack(
        27,
        "Unix sockets by path and abstract name",
        CONNECT
        + """\
attempt("path", connect, socket.AF_UNIX, "@UNIX_PATH@")
attempt("abstract", connect, socket.AF_UNIX, "\\0@UNIX_NAME@")
attempt("daemon", connect, socket.AF_UNIX, "@DAEMON@")
""",
        Expected.each(CLOSED, "path", "abstract", "daemon"),
        without={
            Layer.SECCOMP: (Expected(prints={"path": "ENOENT", "abstract": "ECONNREFUSED", "daemon": "ENOENT|EACCES"}),)
        },
        with_unix_sockets=(Expected(prints={"path": "ENOENT", "abstract": "ECONNREFUSED", "daemon": "ENOENT|EACCES"}),),
    ),
    Attack(
        28,
        "vsock, netlink, raw and packet sockets",
        with_attempt("""\
import socket
def make(*given):
    socket.socket(*given).close()

attempt("vsock", make, 40, socket.SOCK_STREAM)
attempt("netlink", make, socket.AF_NETLINK, socket.SOCK_RAW, 0)
attempt("raw", make, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("packet", make, socket.AF_PACKET, socket.SOCK_RAW, 0)
attempt("crypto", make, 38, socket.SOCK_SEQPACKET)
"""),
        Expected.each(CLOSED, "vsock", "netlink", "raw", "packet", "crypto"),
        without={Layer.SECCOMP: (Expected(prints={"raw": CLOSED, "packet": CLOSED}),)},
    ),
    Attack(
        153,
        "sockets sent over each other, which outlive their process",
        with_attempt("""\
import array, ctypes, os, socket
one, other = socket.socketpair()
file = os.open("/dev/null", os.O_RDONLY)
descriptors = array.array("i", [one.fileno(), other.fileno(), file])
attempt("sendmsg", one.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
libc = ctypes.CDLL(None, use_errno=True)
def many():
    if libc.sendmmsg(one.fileno(), ctypes.create_string_buffer(64), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "sendmmsg")

attempt("sendmmsg", many)
"""),
        Expected(prints={"sendmsg": REFUSED, "sendmmsg": REFUSED}),
        without={Layer.SECCOMP: ()},
    ),
)
