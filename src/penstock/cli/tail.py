"""Reading a log file that another process writes: its end, and what comes then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 64 * 1024
POLL_SECONDS = 0.2


def read(path: Path, lines: int | None = None, follow: Callable[[], bool] | None = None) -> Iterator[bytes]:
    """The last lines of a file, or all, then what is appended for as long as `follow` says so.

    A file that was cut or replaced meanwhile, as log rotation does, is read from its beginning.
    """
    file = path.open("rb")
    try:
        if lines is not None:
            file.seek(_start_of(file.fileno(), lines))
        while True:
            # Asked before the read, so that nothing written before the end is missed.
            more = follow is not None and follow()
            yield from _rest(file)
            if not more:
                return
            time.sleep(POLL_SECONDS)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if status.st_ino != os.fstat(file.fileno()).st_ino:
                yield from _rest(file)
                file.close()
                file = path.open("rb")
            elif status.st_size < file.tell():
                file.seek(0)
    finally:
        file.close()


def _rest(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _start_of(descriptor: int, lines: int) -> int:
    """Where the last lines of a file begin."""
    end = os.fstat(descriptor).st_size
    if lines == 0:
        return end
    # The break at the very end of a file closes its last line.
    offset, breaks = end, -1 if end and os.pread(descriptor, 1, end - 1) == b"\n" else 0
    while offset > 0:
        begin = max(0, offset - BLOCK)
        block = os.pread(descriptor, offset - begin, begin)
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A:
                breaks += 1
                if breaks == lines:
                    return begin + index + 1
        offset = begin
    return 0
