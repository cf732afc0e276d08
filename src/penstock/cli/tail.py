"""Reading log files that another process writes: their ends, and what comes then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = 64 * 1024
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class JobLog:
    """The log of a job; it is read for as long as `follow` says so, or once."""

    job: str
    path: Path
    follow: Callable[[], bool] | None = None


def read(logs: Sequence[JobLog], lines: int | None = None) -> Iterator[bytes]:
    """The last lines of each file, or all, then what is appended; of several files with the name of the job before each part.

    A file that was cut or replaced meanwhile, as log rotation does, is read from its beginning.
    """
    files = [_File(log, lines) for log in logs]
    shown = files[0] if len(files) == 1 else None
    begun = False
    try:
        while files:
            for file in list(files):
                # Asked before the read, so that nothing written before the end is missed.
                more = file.log.follow is not None and file.log.follow()
                for block in file.rest():
                    if shown is not file:
                        yield f"{chr(10) if begun else ''}==> {file.log.job} <==\n".encode()
                        shown, begun = file, True
                    yield block
                if not more:
                    file.close()
                    files.remove(file)
            if files:
                time.sleep(POLL_SECONDS)
    finally:
        for file in files:
            file.close()


class _File:
    """A log that is open, and how far it has been read."""

    def __init__(self, log: JobLog, lines: int | None) -> None:
        self.log = log
        self._file = log.path.open("rb")
        if lines is not None:
            self._file.seek(_start_of(self._file.fileno(), lines))

    def rest(self) -> Iterator[bytes]:
        """What was written since, also into a file that has taken its place."""
        yield from self._blocks()
        try:
            status = self.log.path.stat()
        except FileNotFoundError:
            return
        if status.st_ino != os.fstat(self._file.fileno()).st_ino:
            yield from self._blocks()
            self._file.close()
            self._file = self.log.path.open("rb")
        elif status.st_size < self._file.tell():
            self._file.seek(0)
        yield from self._blocks()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _blocks(self) -> Iterator[bytes]:
        while block := self._file.read(BLOCK):
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
