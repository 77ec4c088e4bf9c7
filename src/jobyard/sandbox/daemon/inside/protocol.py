"""Messages between daemon, zygote and boxes, in fixed-size formats that need little parsing."""

from __future__ import annotations

import struct
from typing import Final

# Daemon to zygote, with the box's five descriptors and those of its cgroups: serial, kind, uid, disk bytes, disk files,
# open files of a driver, whether to rehearse. The zygote responds with the serial, an errno and pidfds: that of the
# box's init and, if the zygote is the program's parent, that of the program, whose exit it then reports.
SPAWN: Final = struct.Struct("<IIIQIII")
SPAWNED: Final = struct.Struct("<II")
SERIAL: Final = struct.Struct("<I")
EXITED: Final = struct.Struct("<Iiiqqq")  # serial, then the body of EXIT
CODE, STDIN, STDOUT, STDERR, STATUS, GROUPS = range(6)  # order of the descriptors; any number of cgroups

# Box to daemon, on the status line: type, length, body.
STATUS_HEAD: Final = struct.Struct("<cI")
HERE: Final = b"H"  # with the pidfd of the program, where the daemon has only that of the init
READY: Final = b"R"  # the last message before the program's process closes the status line
READY_BODY: Final = struct.Struct("<qq")  # CPU time in microseconds, monotonic time in ns
FAILED: Final = b"E"  # set-up failed, with a message; the run never started
EXIT: Final = b"X"
EXIT_BODY: Final = struct.Struct(
    "<iiqqq"
)  # exit code, signal, CPU time in microseconds, peak memory in KiB, monotonic time in ns
READY_FRAME: Final = struct.Struct("<cIqq")
EXIT_FRAME: Final = struct.Struct("<cIiiqqq")

# Daemon to box, on the code pipe: length of the head, head, file contents, source.
CODE_HEAD: Final = struct.Struct("<I")

PROGRAM_FOLDER: Final = "/box"
USER: Final = "box"
ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": PROGRAM_FOLDER,
    "USER": USER,
    "LOGNAME": USER,
    "LANG": "C.UTF-8",
}
