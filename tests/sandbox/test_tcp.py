"""TCP among the processes of a program, where the operator allows it: what works, and what bounds it."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.attack_runs import Setting
from tests.sandbox.machine_tiers import best_tier, offers
from tests.sandbox.processes import children, is_running, zygote
from tests.sandbox.wide_fixtures import in_own_loop

from jobyard.sandbox.attacks.attack import Attack
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon, private_daemon
from jobyard.sandbox.daemon.inside import namespace_pool
from jobyard.sandbox.protocol import TCP_CONNECTION_MB, Limits, RunFinished, RunRequest, RunResponse, RunVerdict, Tier

MOST = 16
OPTIONS = ("--tcp-sockets", str(MOST))
LIMITS = Limits(time_seconds=30.0, memory_mb=256, files_open=512)
HTTP = """
import threading, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.upper().encode() * 20000)
    def log_message(self, *args): pass
server = HTTPServer(("localhost", 0), Hello)
threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
for _ in range(30):  # more than there may be at once
    with urllib.request.urlopen(f"http://localhost:{server.server_port}/hello") as response:
        text = response.read()
print(len(text), text[:6].decode())
server.shutdown()
"""
THREADING = """
import socket, socketserver, threading
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    clients = [socket.create_connection(server.server_address) for _ in range(5)]
    for number, client in enumerate(clients):
        client.sendall(f"hello {number}\\n".encode())
    print(", ".join(client.makefile().readline().strip() for client in clients))
    for client in clients: client.close()
    server.shutdown()
"""
ASYNCIO = """
import asyncio
async def serve(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()
async def ask(port, number):
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(f"hello {number}\\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().strip()
async def main():
    async with await asyncio.start_server(serve, "localhost", 0) as server:
        port = server.sockets[0].getsockname()[1]
        print(", ".join(await asyncio.gather(*(ask(port, number) for number in range(3)))))
asyncio.run(main())
"""
MANAGER = """
from multiprocessing import Process
from multiprocessing.managers import BaseManager
class Counter:
    def __init__(self): self.count = 0
    def add(self, number):
        self.count += number
        return self.count
class Manager(BaseManager): pass
Manager.register("Counter", Counter)
def work(counter, number): counter.add(number)
if __name__ == "__main__":
    with Manager(address=("127.0.0.1", 0), authkey=b"key") as manager:
        counter = manager.Counter()
        workers = [Process(target=work, args=(counter, number)) for number in range(3)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        print(counter.add(10))
"""
XMLRPC = """
import threading, xmlrpc.client
from xmlrpc.server import SimpleXMLRPCServer
with SimpleXMLRPCServer(("localhost", 0), logRequests=False) as server:
    server.register_function(pow)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    print(xmlrpc.client.ServerProxy(f"http://localhost:{server.server_address[1]}").pow(2, 10))
    server.shutdown()
"""
FILES = """
import functools, shutil, socket, threading
open("a", "w").write("x" * 100000)
shutil.copyfile("a", "b")
server = socket.create_server(("127.0.0.1", 0))
def send():
    connection, _ = server.accept()
    with connection, open("b", "rb") as file:
        connection.sendfile(file)
threading.Thread(target=send).start()
with socket.create_connection(server.getsockname()) as client:
    print(len(client.makefile("rb").read()))
"""
NODE = """
const http = require("http")
const server = http.createServer((request, response) => response.end(request.url.toUpperCase()))
server.listen(0, () => {
  http.get({ port: server.address().port, host: "localhost", path: "/hello" }, (response) => {
    response.on("data", (data) => console.log(data.toString()))
    response.on("end", () => server.close())
  })
})
"""
C = """
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *)&at, size);
  listen(listener, 5);
  getsockname(listener, (struct sockaddr *)&at, &size);
  if (fork() == 0) {
    int client = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    if (connect(client, (struct sockaddr *)&at, size) < 0) perror("connect");
    dprintf(client, "hello\\n");
    return 0;
  }
  char text[100];
  ssize_t got = read(accept(listener, 0, 0), text, sizeof text);
  printf("%.*s", (int)got, text);
}
"""
LESSONS = {
    "http": ("python", HTTP, b"120000 /HELLO\n"),
    "socketserver": ("python", THREADING, b"HELLO 0, HELLO 1, HELLO 2, HELLO 3, HELLO 4\n"),
    "asyncio": ("python", ASYNCIO, b"HELLO 0, HELLO 1, HELLO 2\n"),
    "manager": ("python", MANAGER, b"13\n"),
    "xmlrpc": ("python", XMLRPC, b"1024\n"),
    "files": ("python", FILES, b"100000\n"),
    "node": ("javascript", NODE, b"/HELLO\n"),
    "c": ("c", C, b"hello\n"),
}
LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 4000), backlog=5)
client = socket.create_connection(("127.0.0.1", 4000))
other, _ = server.accept()
other.close()  # this end closes first, so the port stays in use for a minute
client.close()
print("listens", flush=True)
sys.stdin.read()
"""
REACH = """
import errno, socket
with socket.socket() as server:
    server.bind(("127.0.0.1", 4000))  # without SO_REUSEADDR
with socket.socket() as client:
    print(errno.errorcode[client.connect_ex(("127.0.0.1", 4000))])
print(len(open("/proc/self/net/tcp").read().splitlines()))
"""
THREADS = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0), backlog=100)
def connect_all():
    made = []
    try:
        while True:
            made.append(socket.socket())
            made[-1].connect(server.getsockname())
            made.append(server.accept()[0])
    except OSError:
        return len([each for each in made if each.close() is None]) // 2
done, connected, gate = threading.Event(), threading.Barrier(11), threading.Lock()
def once():
    with gate, socket.create_connection(server.getsockname()):
        server.accept()[0].close()
    connected.wait()
    done.wait()
threads = [threading.Thread(target=once) for _ in range(10)]
for thread in threads: thread.start()
connected.wait()
beside = connect_all()
done.set()
for thread in threads: thread.join()
print(beside, "beside the threads,", connect_all(), "after them")
"""


async def run(connection: DaemonConnection, source: str, language: str = "python") -> RunFinished:
    seen = await connection.run(RunRequest(id=0, language=language, source=source.encode(), limits=LIMITS))
    assert isinstance(seen, RunFinished), seen
    return seen


@pytest.fixture(scope="module")
def open_daemon() -> Iterator[PrivateDaemon]:
    if best_tier() is not Tier.A:
        pytest.skip("TCP needs a network namespace that root can configure")
    with in_own_loop(private_daemon(slots=3, languages=["python", "javascript", "c"], options=OPTIONS)) as made:
        yield made


@pytest.fixture
async def tcp(open_daemon: PrivateDaemon) -> AsyncIterator[DaemonConnection]:
    async with connect(open_daemon.socket) as made:
        state = await made.ready()
        assert (state.tcp_sockets, state.why_no_tcp) == (MOST, "")
        yield made


@pytest.mark.parametrize("name", LESSONS)
async def test_lessons_on_sockets_work_where_tcp_is_allowed(tcp: DaemonConnection, name: str) -> None:
    language, source, stdout = LESSONS[name]
    if language not in {each.name for each in (await tcp.checked_state()).languages}:
        pytest.skip(f"{language} is not installed here")
    seen = await run(tcp, source, language)
    assert (seen.stdout, seen.stderr) == (stdout, b"")


@pytest.mark.parametrize("number", [175, 176, 177, 179, 183])
async def test_a_program_has_no_more_connections_than_allowed_sockets(tcp: DaemonConnection, number: int) -> None:
    seen = await run(tcp, attack(number))
    assert seen.verdict is RunVerdict.OK, seen.stderr
    found = re.search(rb"(connections|pairs): (\d+)", seen.stdout)
    assert found is not None, seen.stdout
    assert 1 < int(found[2]) <= MOST


async def test_a_thread_that_has_connected_counts_while_it_lives(tcp: DaemonConnection) -> None:
    """It may have been allowed a call that has not begun yet, with a socket that is created later."""
    assert (await run(tcp, THREADS)).stdout == b"3 beside the threads, 8 after them\n"


@pytest.mark.skipif(
    not os.access("/proc/kpageflags", os.R_OK) or resource.getpagesize() != 4096, reason="needs root and pages of 4 kB"
)
async def test_memory_kept_by_connections_stays_within_its_bound(tcp: DaemonConnection) -> None:
    """The attack keeps the most that a connection can: about 7 MB each, which no counter of the kernel covers."""
    source = attack(183) + "sys.stdout.flush()\nsys.stdin.read()\n"
    before = large_buffers_mb()
    seen = asyncio.Event()
    request = RunRequest(id=0, language="python", source=source.encode(), limits=LIMITS, interactive=True, stream=True)
    run_id, response = tcp.begin(request, lambda output: seen.set() if b"pairs" in output.data else None)
    await first_of(seen, response)
    kept = large_buffers_mb() - before
    assert not response.done()
    tcp.cancel(run_id)
    await response
    assert 20 < kept < MOST * TCP_CONNECTION_MB
    while large_buffers_mb() - before > 20:  # noqa: ASYNC110 - the kernel frees them after the run
        await asyncio.sleep(0.05)


async def first_of(event: asyncio.Event, response: asyncio.Future[RunResponse]) -> None:
    waiting = asyncio.ensure_future(event.wait())
    both: set[asyncio.Future[Any]] = {waiting, response}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def large_buffers_mb() -> float:
    """Memory in blocks of 32 kB that belong to no process, no file and no cache: the buffers of sockets use them."""
    head, tail = (1 << 15).to_bytes(8, "little"), (1 << 16).to_bytes(8, "little")
    block, count = head + tail * 7, 0
    with Path("/proc/kpageflags").open("rb") as flags:
        while data := flags.read(8 << 20):
            at = data.find(block)
            while at >= 0:
                count += at % 8 == 0 and data[at + len(block) :][:8] != tail
                at = data.find(block, at + 8)
    return count * 32 / 1024


async def test_concurrent_and_later_runs_have_networks_of_their_own(tcp: DaemonConnection) -> None:
    listens = asyncio.Event()
    request = RunRequest(id=0, language="python", source=LISTEN.encode(), limits=LIMITS, interactive=True, stream=True)
    run_id, response = tcp.begin(request, lambda _: listens.set())
    await first_of(listens, response)
    assert (await run(tcp, REACH)).stdout == b"ECONNREFUSED\n1\n"
    tcp.cancel(run_id)
    await response
    for seen in await asyncio.gather(*(run(tcp, REACH) for _ in range(12))):
        assert (seen.stdout, seen.stderr) == (b"ECONNREFUSED\n1\n", b"")


async def test_runs_end_while_the_limiter_does_not_answer_and_go_on_when_it_is_lost() -> None:
    if best_tier() is not Tier.A:
        pytest.skip("TCP needs a network namespace that root can configure")
    connects = 'import socket\ntry: socket.create_connection(("127.0.0.1", 1))\nexcept OSError as error: print(error)'
    async with (
        private_daemon(slots=1, pool=0, languages=["python"], options=OPTIONS) as daemon,
        connect(daemon.socket) as made,
    ):
        await made.ready()
        assert (await run(made, connects)).stdout == b"[Errno 111] Connection refused\n"
        limiter = limiter_of(made.daemon_pid)
        os.kill(limiter, signal.SIGSTOP)
        request = RunRequest(id=0, language="python", source=connects.encode(), limits=Limits(time_seconds=0.3))
        stopped = await made.run(request)
        assert isinstance(stopped, RunFinished)
        assert stopped.verdict is RunVerdict.TIME_LIMIT
        os.kill(limiter, signal.SIGKILL)
        while is_running(limiter):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        again = RunRequest(id=0, language="python", source=connects.encode(), limits=LIMITS)
        while not isinstance(seen := await made.run(again), RunFinished):
            pass  # until the daemon has noticed and has another zygote
        assert seen.stdout == b"[Errno 111] Connection refused\n"
        assert limiter_of(made.daemon_pid) != limiter


async def test_the_limiter_keeps_nothing_of_a_run_that_has_ended() -> None:
    if best_tier() is not Tier.A:
        pytest.skip("TCP needs a network namespace that root can configure")
    async with (
        private_daemon(slots=4, pool=0, languages=["python"], options=OPTIONS) as daemon,
        connect(daemon.socket) as made,
    ):
        await made.ready()
        descriptors = Path(f"/proc/{limiter_of(made.daemon_pid)}/fd")
        before = len(list(descriptors.iterdir()))
        seen = await asyncio.gather(*(run(made, HTTP) for _ in range(8)))
        assert {each.verdict for each in seen} == {RunVerdict.OK}
        while len(list(descriptors.iterdir())) > before:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


def limiter_of(daemon: int) -> int:
    """The process below the zygote that holds the notifications of a filter, or waits for the first."""
    own = zygote(daemon)
    (found,) = [pid for pid in children(own) if niceness(pid) > niceness(own) and not children(pid)]
    return found


def niceness(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


async def test_tcp_is_refused_by_default(connection: DaemonConnection) -> None:
    state = await connection.fetch_state()
    assert (state.tcp_sockets, state.why_no_tcp) == (0, "")
    seen = await run(connection, "import socket\nsocket.socket()")
    assert b"PermissionError: [Errno 1]" in seen.stderr


@pytest.mark.parametrize(("tier", "why"), [(Tier.B, "cannot configure a network"), (Tier.C, "no network namespace")])
async def test_other_tiers_refuse_tcp_and_say_why(tier: Tier, why: str) -> None:
    if not offers(Setting(tier)):
        pytest.skip(f"tier {tier} is not supported here")
    async with (
        private_daemon(tier=tier, slots=1, languages=["python"], options=OPTIONS) as daemon,
        connect(daemon.socket) as made,
    ):
        state = await made.ready()
        assert state.tcp_sockets == 0
        assert why in state.why_no_tcp
        assert b"PermissionError: [Errno 1]" in (await run(made, "import socket\nsocket.socket()")).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_network_has_small_buffers_and_ipv4_only() -> None:
    shown = in_new_network(
        "namespace_pool.start_loopback()\n"
        "for name in ('tcp_rmem', 'tcp_wmem'): print(open(f'/proc/sys/net/ipv4/{name}').read().split())\n"
        "print(open('/proc/sys/net/ipv4/tcp_fastopen').read().strip())\n"
        "print(open('/proc/self/net/if_inet6').read() if os.path.exists('/proc/self/net/if_inet6') else '')\n"
    )
    small = ["4096"] * 3
    assert shown.splitlines() == [f"{small}", f"{small}", "0", ""]


def in_new_network(program: str) -> str:
    folder = Path(namespace_pool.__file__).parents[4]
    start = f"import os, sys\nsys.path.insert(0, {str(folder)!r})\n"
    start += "from jobyard.sandbox.daemon.inside import kernel, namespace_pool\nkernel.unshare(kernel.NEWNET)\n"
    done = subprocess.run(["/usr/bin/python3", "-c", start + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attack(number: int) -> str:
    found = next(each for each in ATTACKS if each.number == number)
    assert isinstance(found, Attack)
    assert isinstance(found.program, str)
    return found.program
