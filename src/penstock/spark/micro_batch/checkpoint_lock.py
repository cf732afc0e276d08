"""The lock of a checkpoint on a local disk: one run at a time uses the folder.

It is a lock of the operating system, so it ends with its process, however that ends. Programs that Spark has started may live
on for a moment: a run that relies on being alone needs the query's lease too, which nobody gets before they are gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from urllib.parse import unquote, urlparse

from penstock.errors import StateError

NAME = "_penstock.lock"


class CheckpointLock:
    """The exclusive use of one folder; released by the end of the process at the latest."""

    def __init__(self, folder: str) -> None:
        """Lock a folder of this machine; StateError when a run uses it, OSError when its disk has no locks."""
        os.makedirs(folder, exist_ok=True)
        self._file = os.open(os.path.join(folder, NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise StateError(
                "another query uses this checkpoint",
                code="STREAM_CHECKPOINT_USED",
                where=folder,
                hint="stop that query first, or give this one a checkpoint.location of its own",
            ) from None

    def release(self) -> None:
        """Let another run use the folder."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def acquire(checkpoint: str) -> CheckpointLock | None:
    """Lock a checkpoint; None when it is not on a disk of this machine, or on one that has no locks."""
    location = urlparse(checkpoint)
    if location.scheme not in ("", "file") or location.netloc not in ("", "localhost"):
        return None
    try:
        return CheckpointLock(unquote(location.path) if location.scheme else checkpoint)
    except OSError:
        return None
