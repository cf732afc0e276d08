"""A log of whole files, for storage that several machines reach: one file for each record, or for each sync interval.

A file is named by the number of its first record and by its writer (`00000000000000000120-w3.log`). Which records
count is said elsewhere (`LogIndex`): up to which number, and from which number on those of which writer. So a writer
that does not know yet that another one has taken over may put whatever it likes: nobody reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import PenstockError, StateError
from penstock.state.files import Files
from penstock.state.log import SUFFIX, Record, decoded_records, encode, log_damaged

_NAME = re.compile(r"(\d{20})-(\w+)" + re.escape(SUFFIX))
Span = tuple[int, str]


class LogIndex(Protocol):
    """Says which records of a log count."""

    @property
    def spans(self) -> Sequence[Span]:
        """(first number, writer), ascending; this writer is the last one."""

    @property
    def next(self) -> int:
        """The first number that does not count."""

    def dropped_before(self, number: int) -> None:
        """Records before a number are not there any more."""

    def publish_log(self, next: int) -> None:
        """Let all records before a number count; StateError when they do not, because somebody else owns the log or
        nobody answers."""


class ObjectLog:
    """The log of a folder, open for appending by one writer."""

    def __init__(self, folder: Path, *, files: Files, index: LogIndex) -> None:
        self._folder = folder
        self._files = files
        self._index = index
        self._writer = index.spans[-1][1]
        self._waiting: list[bytes] = []  # records that are not written yet
        self._first = index.next  # the number of the first of them
        self._size = 0
        self._appending = RLock()
        self._failed: BaseException | None = None
        self.next = index.next
        """The number of the next record."""
        files.make_folder(folder)

    # Reading

    def records(self, first: int) -> Iterator[Record]:
        """Yield the records that count from a number on; StateError when one of them is missing or damaged."""
        files = {
            int(match[1]): name
            for name in self._files.names(self._folder)
            if (match := _NAME.fullmatch(name)) and match[2] == self._writer_of(int(match[1]))
        }
        expected = first
        while expected < self._index.next:
            if expected not in files:
                raise log_damaged(self._files.location(self._folder), f"record {expected} is missing")
            begin = expected
            for record in self._read(files[begin]):
                if record.number != expected:
                    where = self._files.location(self._folder / files[begin])
                    raise log_damaged(where, f"record {record.number} stands where {expected} is expected")
                if record.number >= self._index.next:
                    return
                yield record
                expected += 1
            if expected == begin:
                raise log_damaged(self._files.location(self._folder / files[begin]), "there is no record")

    def reader(self, first: int) -> ObjectReader:
        """Read records that have been appended, from a number on, beside the thread that appends."""
        return ObjectReader(self, first)

    def _writer_of(self, number: int) -> str | None:
        """The writer whose record of a number counts."""
        spans = [*self._index.spans, (self._index.next, "")]
        return next((span[1] for span, after in pairwise(spans) if span[0] <= number < after[0]), None)

    def _read(self, name: str) -> Iterator[Record]:
        path = self._folder / name
        where = self._files.location(path)
        return decoded_records(
            memoryview(self._files.read(path)),
            lambda offset, why: log_damaged(f"{where}, byte {offset}", why),
        )

    # Writing

    def append(
        self, header: Mapping[str, Any], batches: Sequence[pa.RecordBatch] = (), *, sync: bool = True
    ) -> None:
        """Write a record, and sync it; when it raises, the record does not count, and the log takes others."""
        with self._appending:
            if self._failed is not None:
                raise self._broken()
            content = encode(Record(self.next, header, tuple(batches)))
            self._waiting.append(content)
            self.next += 1
            if not sync:
                return
            try:
                self._put()
            except BaseException as error:
                del self._waiting[-1]
                self.next -= 1
                if isinstance(error, OSError):
                    raise self._unwritten(error) from error
                raise

    def sync(self) -> None:
        """Return when all records count; after an error the log takes no more, because ticks that have returned are not there."""
        with self._appending:
            if self._failed is not None:
                raise self._broken()
            if not self._waiting:
                return
            try:
                self._put()
            except BaseException as error:
                self._failed = error
                raise

    def _put(self) -> None:
        size = sum(map(len, self._waiting))
        path = self._folder / f"{self._first:020d}-{self._writer}{SUFFIX}"
        self._files.put(path, self._waiting)
        self._index.publish_log(self.next)
        self._waiting, self._first = [], self.next
        self._size += size

    def rotate(self) -> int:
        """Sync, and return the number of the next record, which begins a file."""
        with self._appending:
            self.sync()
            self._size = 0
            return self.next

    def drop_before(self, number: int) -> None:
        """Drop the files that begin before a number; it is one that `rotate` gave."""
        for name in self._files.names(self._folder):
            match = _NAME.fullmatch(name)
            if match and int(match[1]) < number:
                self._files.remove(self._folder / name)
        self._index.dropped_before(number)

    def size(self) -> int:
        """Bytes since the last rotation."""
        return self._size

    def close(self) -> None:
        """Sync what is left, if the log has not failed."""
        if self._failed is None:
            self.sync()

    def _unwritten(self, error: OSError) -> StateError:
        return StateError(
            f"the log of the flow could not be written: {error}",
            code="FLOW_LOG",
            hint="nothing has changed; free space or repair the storage, then feed it again",
            where=self._files.location(self._folder),
        )

    def _broken(self) -> StateError:
        why = self._failed.message if isinstance(self._failed, PenstockError) else self._failed
        return StateError(
            f"the log of the flow could not be written: {why}; it takes no more ticks",
            code="FLOW_LOG_FAILED",
            hint="open the flow again: every tick that was synced is in it",
            where=self._files.location(self._folder),
        )


class ObjectReader:
    """Reads the records of a log that count, and goes on where it was."""

    def __init__(self, log: ObjectLog, first: int) -> None:
        self._log = log
        self.next = first

    def read(self, end: int) -> Iterator[Record]:
        self._log.sync()
        for record in self._log.records(self.next):
            if record.number >= end:
                return
            yield record
            self.next = record.number + 1
