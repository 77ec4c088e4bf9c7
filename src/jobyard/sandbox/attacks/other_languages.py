"""Attacks in other languages: compilers, the shell and Node."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import ABSENT, REFUSED, SHORT, TIMED_OUT, Attack, Expected, Layer
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

ANY_END = (RunVerdict.COMPILE_ERROR,)
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
        number=120,
        name="bash: fork bomb",
        language="bash",
        program=":(){ :|:& };:\nwait\nwhile true; do :; done\n",
        expected=TIMED_OUT,
        tiers={Tier.B: (TIMED_OUT, FORK_DENIED)},
        limits=SHORT,
        with_bystander=True,
    ),
    Attack(
        number=121,
        name="bash: /dev/tcp and host files",
        language="bash",
        program="""\
(echo x > /dev/tcp/127.0.0.1/@PORT@) 2>/dev/null && echo "tcp: ESCAPED"
(cat @SECRET_FILE@) 2>/dev/null && echo "file: ESCAPED"
(echo x > /etc/jobyard-attack) 2>/dev/null && echo "etc: ESCAPED"
echo "end: reached"
""",
        expected=Expected(prints={"end": "reached"}),
        tiers={Tier.B: (Expected(prints={"end": "reached"}), FORK_DENIED)},
    ),
    Attack(
        number=122,
        name="bash: background processes",
        language="bash",
        program="for i in 1 2 3 4 5; do (setsid sleep 60 &) ; done\necho done\n",
        expected=Expected(stdout=b"done\n"),
        tiers={Tier.B: (Expected(stdout=b"done\n"), FORK_DENIED)},
    ),
    Attack(
        number=123,
        name="C: raw system calls",
        language="c",
        program=IN_C
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
        expected=Expected(
            prints={**dict.fromkeys(("socket", "unshare", "ptrace", "mount"), REFUSED), "secret": ABSENT}
        ),
        without={Layer.SECCOMP: (Expected(prints={"ptrace": REFUSED, "mount": REFUSED, "secret": ABSENT}),)},
        limits=Limits(time_seconds=3),
    ),
    Attack(
        number=124,
        name="C: memory bomb",
        language="c",
        program="""\
#include <stdlib.h>
#include <string.h>
int main(void) { for (;;) { char *p = malloc(8 << 20); if (p) memset(p, 1, 8 << 20); } }
""",
        expected=Expected(verdicts=(RunVerdict.MEMORY_LIMIT,)),
        tiers={Tier.B: (Expected(verdicts=(RunVerdict.MEMORY_LIMIT,)), TIMED_OUT)},
    ),
    Attack(
        number=125,
        name="C: include a host file",
        language="c",
        program='#include "@SECRET_FILE@"\nint main(void) { return 0; }\n',
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=126,
        name="C: host file through the assembler",
        language="c",
        program='__asm__(".incbin \\"@SECRET_FILE@\\"");\nint main(void) { return 0; }\n',
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=127,
        name="C: include /dev/zero",
        language="c",
        program='#include "/dev/zero"\nint main(void) { return 0; }\n',
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=128,
        name="C: a 1 GB program",
        language="c",
        program="char large[1 << 30] = {1};\nint main(void) { return 0; }\n",
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=129,
        name="C++: endless templates",
        language="cpp",
        program="""\
template <int N> struct Deep { static const int value = Deep<N + 1>::value + Deep<N + 2>::value; };
int main() { return Deep<0>::value; }
""",
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=130,
        name="C: flood of compiler messages",
        language="c",
        program="#define A B B B B B B B B\n#define B C C C C C C C C\n#define C D D D D D D D D\n"
        "#define D E E E E E E E E\n#define E F F F F F F F F\n#define F undefined_name;\nint main(void) { A }\n",
        expected=Expected(verdicts=ANY_END),
    ),
    Attack(
        number=131,
        name="Node: memory bomb",
        language="javascript",
        program="const kept = []; for (;;) kept.push(Buffer.alloc(8 << 20, 1));\n",
        expected=Expected(verdicts=(RunVerdict.MEMORY_LIMIT,)),
    ),
    Attack(
        number=132,
        name="Node: children, network, host files",
        language="javascript",
        program="""\
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
        expected=Expected(prints={"file": ABSENT}),
    ),
    Attack(
        number=133,
        name="Node: endless loop",
        language="javascript",
        program="for (;;);\n",
        expected=TIMED_OUT,
        limits=SHORT,
    ),
    Attack(
        number=134,
        name="Node: inspect the driver",
        language="javascript",
        program="""\
const known = ["HOME", "PATH", "LANG", "TZ", "LC_ALL", "TMPDIR"];
console.log(`env: ${Object.keys(process.env).filter((name) => !known.includes(name))}`);
console.log(`main: ${Object.keys(require.cache || {}).some((name) => name.includes("jobyard")) ? "ESCAPED" : "none"}`);
""",
        expected=Expected(prints={"main": "none"}),
    ),
    Attack(
        number=135,
        name="Node: write to inherited descriptors",
        language="javascript",
        program="""\
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
        expected=Expected(verdicts=(RunVerdict.OK, RunVerdict.SIGNALED, RunVerdict.RUNTIME_ERROR)),
    ),
)
