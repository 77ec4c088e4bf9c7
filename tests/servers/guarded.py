"""Becomes another program that cannot outlive its parent: `guarded.py SIGNAL USER PARENT program argument…`.

A script of its own, because code between fork and exec is not safe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    number, user, parent, *command = sys.argv[1:]
    if user:
        import pwd  # noqa: PLC0415

        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user)
    if sys.platform == "linux":
        # After the change of user, which takes it back.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):
        sys.exit("the tests ended while this server was being started")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
