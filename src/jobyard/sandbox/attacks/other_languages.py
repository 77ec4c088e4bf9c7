"""Attacks in other languages: compilers, the shell and Node."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import ABSENT, NO_MEMORY, REFUSED, SHORT, TIMED_OUT, Attack, Expected, Layer
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

NOT_COMPILED = Expected(verdicts=(RunVerdict.COMPILE_ERROR,))
IN_C = """\
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
static void report(const char *name, long got) { printf("%s: %s\\n", name, got < 0 ? strerrorname_np(errno) : "DONE"); }
"""
FORK_DENIED = Expected(verdicts=(RunVerdict.OK, RunVerdict.RUNTIME_ERROR))

ATTACKS = (
    Attack(
        120,
        "bash: fork bomb",
        ":(){ :|:& };:\nwait\nwhile true; do :; done\n",
        TIMED_OUT,
        language="bash",
        tiers={Tier.B: (TIMED_OUT, FORK_DENIED)},
        limits=SHORT,
        with_bystander=True,
    ),
    Attack(
        121,
        "bash: /dev/tcp and host files",
        """\
(echo x > /dev/tcp/127.0.0.1/@PORT@) 2>/dev/null && echo "tcp: ESCAPED"
(cat @SECRET_FILE@) 2>/dev/null && echo "file: ESCAPED"
(echo x > /etc/jobyard-attack) 2>/dev/null && echo "etc: ESCAPED"
echo "end: reached"
""",
        Expected(prints={"end": "reached"}),
        language="bash",
        tiers={Tier.B: (Expected(prints={"end": "reached"}), FORK_DENIED)},
    ),
    Attack(
        122,
        "bash: background processes",
        "for i in 1 2 3 4 5; do (setsid sleep 60 &) ; done\necho done\n",
        Expected(stdout=b"done\n"),
        language="bash",
        tiers={Tier.B: (Expected(stdout=b"done\n"), FORK_DENIED)},
    ),
    Attack(
        123,
        "C: raw system calls",
        IN_C
        + """\
int main(void) {
    report("socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    report("unshare", syscall(SYS_unshare, 0x10000000));
    report("secret", open("@SECRET_FILE@", O_RDONLY));
    report("ptrace", syscall(SYS_ptrace, 16, 1, 0, 0));
    report("mount", syscall(SYS_mount, "x", "/tmp", "tmpfs", 0, 0));
    return 0;
}
""",
        Expected(prints={**dict.fromkeys(("socket", "unshare", "ptrace", "mount"), REFUSED), "secret": ABSENT}),
        language="c",
        without={Layer.SECCOMP: (Expected(prints={"ptrace": REFUSED, "mount": REFUSED, "secret": ABSENT}),)},
        with_tcp=(
            Expected(
                prints={**dict.fromkeys(("unshare", "ptrace", "mount"), REFUSED), "socket": "DONE", "secret": ABSENT}
            ),
        ),
        limits=Limits(time_seconds=3),
    ),
    Attack(
        124,
        "C: memory bomb",
        """\
#include <stdlib.h>
#include <string.h>
int main(void) { for (;;) { char *p = malloc(8 << 20); if (p) memset(p, 1, 8 << 20); } }
""",
        NO_MEMORY,
        language="c",
        tiers={Tier.B: (NO_MEMORY, TIMED_OUT)},
    ),
    Attack(
        125,
        "C: include a host file",
        '#include "@SECRET_FILE@"\nint main(void) { return 0; }\n',
        NOT_COMPILED,
        language="c",
    ),
    Attack(
        126,
        "C: host file through the assembler",
        '__asm__(".incbin \\"@SECRET_FILE@\\"");\nint main(void) { return 0; }\n',
        NOT_COMPILED,
        language="c",
    ),
    Attack(
        127,
        "C: include /dev/zero",
        '#include "/dev/zero"\nint main(void) { return 0; }\n',
        NOT_COMPILED,
        language="c",
    ),
    Attack(
        128,
        "C: a 1 GB program",
        "char large[1 << 30] = {1};\nint main(void) { return 0; }\n",
        NOT_COMPILED,
        language="c",
    ),
    Attack(
        129,
        "C++: endless templates",
        """\
template <int N> struct Deep { static const int value = Deep<N + 1>::value + Deep<N + 2>::value; };
int main() { return Deep<0>::value; }
""",
        NOT_COMPILED,
        language="cpp",
    ),
    Attack(
        130,
        "C: flood of compiler messages",
        "#define A B B B B B B B B\n#define B C C C C C C C C\n#define C D D D D D D D D\n"
        "#define D E E E E E E E E\n#define E F F F F F F F F\n#define F undefined_name;\nint main(void) { A }\n",
        NOT_COMPILED,
        language="c",
    ),
    Attack(
        131,
        "Node: memory bomb",
        "const kept = []; for (;;) kept.push(Buffer.alloc(8 << 20, 1));\n",
        NO_MEMORY,
        language="javascript",
    ),
    Attack(
        132,
        "Node: children, network, host files",
        """\
const fs = require("fs"), net = require("net"), child = require("child_process");
try {
  fs.readFileSync("@SECRET_FILE@");
  console.log("file: ESCAPED");
} catch (error) {
  console.log(`file: ${error.code}`);
}
const got = child.spawnSync("/bin/sh", ["-c", "echo x > /etc/jobyard-attack && echo ESCAPED"]);
console.log(`child: ${got.error ? got.error.code : "ended " + String(got.stdout)}`);
try {
  const line = net.connect(@PORT@, "127.0.0.1", () => { console.log("net: ESCAPED"); process.exit(0); });
  line.on("error", (error) => console.log(`net: ${error.code}`));
} catch (error) { console.log(`net: ${error.code}`); }
""",
        Expected(prints={"file": ABSENT}),
        language="javascript",
    ),
    Attack(133, "Node: endless loop", "for (;;);\n", TIMED_OUT, language="javascript", limits=SHORT),
    Attack(
        134,
        "Node: inspect the driver",
        """\
const known = ["HOME", "PATH", "LANG", "TZ", "LC_ALL", "TMPDIR"];
console.log(`env: ${Object.keys(process.env).filter((name) => !known.includes(name))}`);
console.log(`main: ${Object.keys(require.cache || {}).some((name) => name.includes("jobyard")) ? "ESCAPED" : "none"}`);
""",
        Expected(prints={"main": "none"}),
        language="javascript",
    ),
    Attack(
        135,
        "Node: write to inherited descriptors",
        """\
const fs = require("fs");
for (let fd = 3; fd < 40; fd++) {
  for (const kind of [1, 2, 69, 70, 82]) {
    try {
      if (fs.fstatSync(fd).isSocket() || fs.fstatSync(fd).isFIFO()) fs.writeSync(fd, Buffer.alloc(64, kind));
    } catch {}
  }
}
console.log("end: reached");
""",
        # Node's own pipes are among them, so it may crash itself.
        Expected(verdicts=(RunVerdict.OK, RunVerdict.SIGNALED, RunVerdict.RUNTIME_ERROR)),
        language="javascript",
    ),
)
