"""Locks an open file for one process: with `flock` on Linux and macOS, with a lock of one byte on Windows."""

from __future__ import annotations

import errno
import os
import sys
import time

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_NONE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some network file systems
_BYTE = 1 << 30  # the byte that Windows locks: far behind the content, which others may read


def hold(descriptor: int, *, wait: bool = False) -> bool | None:
    """Locks the open file until its descriptor is closed; on Linux and macOS also in each child that inherited it.

    :param wait: wait until no other process holds the lock.
    :returns: False if another process holds the lock; None if the file system has no such locks.
    """
    return _hold(descriptor, wait, shared=False)


def is_held(descriptor: int) -> bool | None:
    """Whether a process of this machine holds the lock of the file; None as for `hold`. This opens the file again."""
    held = _hold(descriptor, wait=False, shared=True)
    return None if held is None else not held


if sys.platform == "win32":

    def _hold(descriptor: int, wait: bool, *, shared: bool) -> bool:
        while True:
            before = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                return True
            except PermissionError:
                if not wait:
                    return False
            finally:
                os.lseek(descriptor, before, os.SEEK_SET)
            time.sleep(0.1)

else:

    def _hold(descriptor: int, wait: bool, *, shared: bool) -> bool | None:
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NONE:
                return None
            raise
        return True
