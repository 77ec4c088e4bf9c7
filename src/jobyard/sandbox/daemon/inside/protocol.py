"""What the supervisor, the zygote and a member say to each other: fixed sizes, so there is little to parse."""

from __future__ import annotations

import struct
from typing import Final

# Supervisor to zygote, with the member's five descriptors and those of its control groups: serial, kind, uid, bytes
# and files of its disk, open files of a driver, whether to rehearse. The zygote answers with the serial, an
# errno, and pidfds: of the member's init and, when that only sleeps, of the program's process, whose end the zygote
# then tells, too.
SPAWN: Final = struct.Struct("<IIIQIII")
SPAWNED: Final = struct.Struct("<II")
SERIAL: Final = struct.Struct("<I")
EXITED: Final = struct.Struct("<Iiiqqq")  # serial, then the body of EXIT
CODE, STDIN, STDOUT, STDERR, STATUS, GROUPS = range(6)  # the descriptors, in this order; any number of groups

# Member to supervisor, on the status socket: what, how many bytes, the bytes.
STATUS_HEAD: Final = struct.Struct("<cI")
HERE: Final = b"H"  # with the pidfd of the program's process, where the supervisor has a hold on init only
READY: Final = b"R"  # said by the program's process in its last moment with that socket; what it has used so far
READY_BODY: Final = struct.Struct("<qq")  # microseconds of processor, clock in ns
FAILED: Final = b"E"  # setup went wrong, in words; the run never began
EXIT: Final = b"X"
EXIT_BODY: Final = struct.Struct("<iiqqq")  # exit code, signal, microseconds of processor, peak in KiB, clock in ns
READY_FRAME: Final = struct.Struct("<cIqq")
EXIT_FRAME: Final = struct.Struct("<cIiiqqq")

# Supervisor to member, on the code pipe: a length, a head of plain values as long, the files' bytes, the source.
CODE_HEAD: Final = struct.Struct("<I")

PROGRAM_FOLDER: Final = "/box"
