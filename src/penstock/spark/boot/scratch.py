"""Temporary folders that are gone when their processes are: that of a JVM (shuffle files, unpacked native libraries,
sockets), and those of flows in shards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

PREFIX = "penstock-jvm-"
LOCK = "penstock.lock"


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """A folder and the descriptor of its lock, which a JVM inherits: the lock is held while either process lives."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Delete the folder with everything in it."""
        with contextlib.suppress(OSError):
            os.close(self.lock)
        shutil.rmtree(self.path, ignore_errors=True)


def make(parent: Path | None = None, *, prefix: str = PREFIX) -> ScratchFolder:
    """Make a folder that only this user can read, and delete those of this kind that dead processes left."""
    where = parent or Path(tempfile.gettempdir())
    sweep(where, prefix=prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return ScratchFolder(path, lock)
        os.close(lock)  # another process's sweep was between our two steps


def sweep(parent: Path, *, prefix: str = PREFIX) -> None:
    """Delete scratch folders whose lock nobody holds."""
    for path in parent.glob(f"{prefix}*/{LOCK}"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(path.parent, ignore_errors=True)
        finally:
            os.close(lock)
