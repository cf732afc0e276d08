"""A checkpoint on a local disk while a run uses it: claimed from the operating system, and written without detours.

Spark writes a file of its notes through Hadoop's newer interface, which starts a program of the system for every rename: half
of the time of a small batch. The older interface is quick, but looks and then renames, so that of two processes that write the
same file none would notice. A claim keeps the second one out; it ends with its process, however that ends. Programs that
Spark has started may live on for a moment, which is why a quick run needs the query's lease too: nobody gets that before they are gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from penstock.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "_penstock.lock"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_setting = threading.Lock()


class Claim:
    """The right of one run to a folder; released by the end of the process at the latest."""

    def __init__(self, folder: str) -> None:
        """Claim a folder of this machine; StateError when a run has it, OSError when its disk has no claims."""
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
        """Let others have it."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def claim(checkpoint: str) -> Claim | None:
    """Claim a checkpoint; None when it is not on a disk of this machine, or on one that has no claims."""
    place = urlparse(checkpoint)
    if place.scheme not in ("", "file") or place.netloc not in ("", "localhost"):
        return None
    try:
        return Claim(unquote(place.path) if place.scheme else checkpoint)
    except OSError:
        return None


def manner(spark: SparkSession, *, quick: bool, checksums: bool) -> dict[str, str]:
    """Return the settings with which a query shall start; what the user has set stays."""
    wanted = {MANAGER: QUICK_MANAGER} if quick else {}
    if not checksums:
        wanted[CHECKSUMS] = "false"
    return {key: value for key, value in wanted.items() if spark.conf.get(key, None) in (None, "true")}


@contextlib.contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Give the session settings for the moment in which a query takes its own copy of them; one query at a time."""
    with _setting:
        before = {key: spark.conf.get(key, None) for key in given}
        for key, value in given.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)
