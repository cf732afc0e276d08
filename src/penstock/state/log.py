"""A log of records in segments: what was appended and synced is read again in the same order, whatever moment the
process died at.

A segment is a file that is named by the number of its first record. A record is

    magic (4 bytes) | size of the header (4) | size of the body (8) | number (8) | CRC-32 of all the rest (4) | header | body

in little-endian order. The header is JSON and the body an Arrow stream for each batch, one behind the other. A record
that ends the last segment and is not whole was being written when the process died: nobody was promised it, and it is
cut off. Any other record that is not whole is damage, and the log is refused with its place.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import StateError
from penstock.state.files import AppendFiles, Files, LocalFiles

_MAGIC = b"PLR1"
_HEAD = struct.Struct("<4sIQQI")
_CHECKED = struct.Struct("<IQQ")  # what the checksum covers of the head
SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class Record:
    """One entry: its number, what JSON can say of it, and its rows."""

    number: int
    header: Mapping[str, Any]
    batches: tuple[pa.RecordBatch, ...] = ()


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    sink = pa.BufferOutputStream()
    for batch in record.batches:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    header = json.dumps(record.header, allow_nan=False, separators=(",", ":")).encode()
    checked = _CHECKED.pack(len(header), len(body), record.number)
    checksum = zlib.crc32(body, zlib.crc32(header, zlib.crc32(checked)))
    return b"".join((_HEAD.pack(_MAGIC, len(header), len(body), record.number, checksum), header, body))


@dataclass(frozen=True, slots=True)
class _Damage:
    """Why the bytes at an offset are no record."""

    why: str
    offset: int


def _decode(content: memoryview, offset: int) -> tuple[Record, int] | _Damage:
    """The record at an offset and where it ends."""
    if len(content) - offset < _HEAD.size:
        return _Damage("the head of a record is cut off", offset)
    magic, header_size, body_size, number, checksum = _HEAD.unpack_from(content, offset)
    if magic != _MAGIC:
        return _Damage("there is no record", offset)
    start = offset + _HEAD.size
    end = start + header_size + body_size
    if end > len(content):
        return _Damage(f"record {number} is cut off", offset)
    checked = _CHECKED.pack(header_size, body_size, number)
    if zlib.crc32(content[start:end], zlib.crc32(checked)) != checksum:
        return _Damage(f"record {number} has another checksum", offset)
    body = pa.py_buffer(content[start + header_size : end])
    return Record(number, json.loads(bytes(content[start : start + header_size])), _batches(body)), end


def decoded_records(content: memoryview, error: Callable[[int, str], StateError]) -> Iterator[Record]:
    """The records of bytes that were written at once; `error` makes the error for an offset, when they are damaged."""
    offset = 0
    while offset < len(content):
        decoded = _decode(content, offset)
        if isinstance(decoded, _Damage):
            raise error(decoded.offset, decoded.why)
        record, offset = decoded
        yield record


def _batches(body: pa.Buffer) -> tuple[pa.RecordBatch, ...]:
    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(body)
    while source.tell() < body.size:
        with pa.ipc.open_stream(source) as reader:
            batches.extend(reader)
    return tuple(batches)


def _has_record(content: memoryview, offset: int) -> bool:
    """Whether a whole record begins anywhere behind an offset: what is before it was whole once."""
    text = bytes(content[offset:])
    at = text.find(_MAGIC)
    while at >= 0:
        if not isinstance(_decode(content, offset + at), _Damage):
            return True
        at = text.find(_MAGIC, at + 1)
    return False


class RecordReader(Protocol):
    """Reads the records of a log in their order while another thread appends to it, and goes on where it was.

    Its caller sees to it that no record is dropped before it was read.
    """

    next: int
    """The number of the next record."""

    def read(self, end: int) -> Iterator[Record]:
        """Yield the records up to a number, all of which have been appended.

        A record is read when the caller asks for the one behind it: one at which he stops comes again.
        """


class Log(Protocol):
    """Records in their order: what was appended and synced is read again."""

    next: int
    """The number of the next record."""

    def records(self, first: int) -> Iterator[Record]:
        """Yield the records from a number on; then the log is open for appending behind them."""

    def reader(self, first: int) -> RecordReader:
        """Read records that have been appended, from a number on, beside the thread that appends."""

    def append(
        self, header: Mapping[str, Any], batches: Sequence[pa.RecordBatch] = (), *, sync: bool = True
    ) -> None:
        """Write a record, and sync it; when it raises, the log is what it was."""

    def sync(self) -> None:
        """Return when all records last. After an error nobody knows which do: the log takes no more records."""

    def rotate(self) -> int:
        """Let the next record begin a segment, and return its number; `drop_before` can then drop the others."""

    def drop_before(self, number: int) -> None:
        """Drop the segments all of whose records are before a number."""

    def size(self) -> int:
        """Bytes since the last rotation."""

    def close(self) -> None:
        """Sync what is left."""


class RecordLog:
    """The log of a folder, open for appending. One process has it at a time; its caller sees to that."""

    def __init__(self, folder: Path, *, first: int = 1, files: AppendFiles | None = None) -> None:
        """Open the log, or begin one with the record `first`. `records` gives what is in it."""
        self._folder = folder
        self._files = files or LocalFiles()
        self._files.make_folder(folder)
        self._starts = _segments(folder, self._files)
        self._handle: int | None = None
        self._size = 0  # of the last segment, up to its last whole record
        self._synced = 0  # the first record that may not be on the disk
        self._segment_lock = (
            Lock()
        )  # segments are synced and dropped in other threads than the one that appends
        self._failed: BaseException | None = None
        self.next = first
        """The number of the next record."""

    # Reading

    def records(self, first: int) -> Iterator[Record]:
        """Yield the records from a number on; then the log is open for appending behind them.

        StateError when a record between is missing or damaged.
        """
        self.next = first
        segments = [start for at, start in enumerate(self._starts) if self._end_of(at) > first]
        if segments and segments[0] > first:
            raise self._error(segments[0], 0, f"the records {first} to {segments[0] - 1} are missing")
        for start in segments:
            yield from self._read_segment(start, first, is_last=start == self._starts[-1])

    def reader(self, first: int) -> LogReader:
        """Read records that have been appended, from a number on, beside the thread that appends."""
        return LogReader(self._folder, first, self._files)

    def _end_of(self, at: int) -> float:
        """The first number behind a segment."""
        return self._starts[at + 1] if at + 1 < len(self._starts) else float("inf")

    def _read_segment(self, start: int, first: int, *, is_last: bool) -> Iterator[Record]:
        content = memoryview(self._files.read(self._path(start)))
        offset = 0
        number = start
        while offset < len(content):
            decoded = _decode(content, offset)
            if isinstance(decoded, _Damage):
                if not is_last or _has_record(content, offset + 1):
                    raise self._error(start, offset, decoded.why)
                self._cut(start, offset)
                break
            record, offset = decoded
            if record.number != number:
                raise self._error(start, offset, f"record {record.number} stands where {number} is expected")
            number += 1
            if record.number >= first:
                self.next = number
                yield record
        self._size = offset

    def _cut(self, start: int, size: int) -> None:
        """Cut off what a dying process had begun to write."""
        handle = self._files.create(self._path(start))
        try:
            self._files.truncate(handle, size)
            self._files.sync(handle)
        finally:
            self._files.close(handle)

    # Writing

    def append(
        self, header: Mapping[str, Any], batches: Sequence[pa.RecordBatch] = (), *, sync: bool = True
    ) -> None:
        """Write a record, and sync it; when it raises, the log is what it was.

        StateError when the record cannot be written, or when an earlier error has left the log in a state that nobody knows.
        """
        if self._failed is not None:
            raise self._broken()
        content = encode(Record(self.next, header, tuple(batches)))
        size = self._size
        try:
            self._files.append(self._segment(), content)
            self._size += len(content)
            self.next += 1
            if sync:
                self.sync()
        except BaseException as error:
            self._take_back(size, error)
            if isinstance(error, OSError):
                raise self._unwritten(error) from error
            raise

    def _take_back(self, size: int, error: BaseException) -> None:
        """Cut off a record that could not be written or synced."""
        if self._size > size:
            self._size = size
            self.next -= 1
        try:
            if self._handle is not None:
                self._files.truncate(self._handle, size)
        except BaseException:
            self._failed = error
            raise

    def _unwritten(self, error: OSError) -> StateError:
        if self._failed is not None:
            return self._broken()
        return StateError(
            f"the log of the flow could not be written: {error}",
            code="FLOW_LOG",
            hint="nothing has changed; free space or repair the disk, then feed it again",
            where=str(self._folder),
        )

    def _broken(self) -> StateError:
        return StateError(
            f"the log of the flow could not be written: {self._failed}; it takes no more ticks",
            code="FLOW_LOG_FAILED",
            hint="repair the disk, then open the flow again: every tick that returned is in it",
            where=str(self._folder),
        )

    def sync(self) -> None:
        """Return when all records are on the disk. After an error nobody knows which are: the log takes no more records.

        StateError then, and at every later call: a disk that forgot what it could not write may say that all is well.
        """
        if self._failed is not None:
            raise self._broken()
        with self._segment_lock:
            try:
                self._sync()
            except OSError as error:
                raise self._broken() from error

    def _sync(self) -> None:
        end = self.next
        if self._handle is None or end <= self._synced:
            return
        try:
            self._files.sync(self._handle)
        except BaseException as error:
            self._failed = error
            raise
        self._synced = end

    def rotate(self) -> int:
        """Let the next record begin a segment, and return its number; `drop_before` can then drop the others."""
        with self._segment_lock:
            self._close()
            if self._starts and self._starts[-1] < self.next:
                self._begin_segment()
        return self.next

    def drop_before(self, number: int) -> None:
        """Drop the segments all of whose records are before a number."""
        with self._segment_lock:
            while len(self._starts) > 1 and self._starts[1] <= number:
                self._files.remove(self._path(self._starts[0]))
                del self._starts[0]

    def size(self) -> int:
        """Bytes of the last segment."""
        return self._size

    def close(self) -> None:
        """Sync and give the file back; a record that is appended later opens it again."""
        with self._segment_lock:
            self._close()

    def _close(self) -> None:
        self._sync()
        if self._handle is not None:
            self._files.close(self._handle)
            self._handle = None

    def _segment(self) -> int:
        """The handle of the last segment; the first record of a log makes it."""
        if self._handle is None:
            with self._segment_lock:
                if self._starts:
                    self._handle = self._files.create(self._path(self._starts[-1]))
                else:
                    self._begin_segment()
        assert self._handle is not None
        return self._handle

    def _begin_segment(self) -> None:
        path = self._path(self.next)
        handle = self._files.create(path)
        try:
            self._files.sync_folder(self._folder)
        except BaseException:
            # The segment before goes on, so none may be there that begins with its next record.
            self._files.close(handle)
            self._files.remove(path)
            raise
        self._handle = handle
        self._starts.append(self.next)
        self._size = 0

    def _path(self, start: int) -> Path:
        return _path(self._folder, start)

    def _error(self, start: int, offset: int, why: str) -> StateError:
        return log_damaged(f"{self._path(start)}, byte {offset}", why)


class LogReader:
    """Reads the segments of a log."""

    def __init__(self, folder: Path, first: int, files: Files) -> None:
        self._folder = folder
        self._files = files
        self._start: int | None = None  # the segment of the next record
        self._offset = 0  # and where it is there
        self.next = first
        """The number of the next record."""

    def read(self, end: int) -> Iterator[Record]:
        while self.next < end:
            start = self._segment_of(self.next)
            if start != self._start:
                self._start, self._offset = start, 0
            yield from self._read_segment(self._path(start), end)

    def _read_segment(self, path: Path, end: int) -> Iterator[Record]:
        with pa.memory_map(str(path)) as file:
            content = memoryview(file.read_buffer())
        first = self.next
        while self._offset < len(content) and self.next < end:
            number, behind = self._skip(path, content)
            if number < self.next:
                self._offset = behind
                continue
            decoded = _decode(content, self._offset)
            if isinstance(decoded, _Damage):
                raise _damaged(path, self._offset, decoded.why)
            if number != self.next:
                raise _damaged(path, self._offset, f"record {number} stands where {self.next} is expected")
            yield decoded[0]
            self.next, self._offset = number + 1, behind
        if self.next == first:
            raise _damaged(path, self._offset, f"record {first} is missing")

    def _skip(self, path: Path, content: memoryview) -> tuple[int, int]:
        """The number of the record at the offset, and where it ends."""
        if len(content) - self._offset >= _HEAD.size:
            magic, header_size, body_size, number, _ = _HEAD.unpack_from(content, self._offset)
            if magic == _MAGIC:
                return number, self._offset + _HEAD.size + header_size + body_size
        raise _damaged(path, self._offset, "there is no record")

    def _segment_of(self, number: int) -> int:
        starts = [start for start in _segments(self._folder, self._files) if start <= number]
        if not starts:
            raise _damaged(self._folder, 0, f"record {number} is missing")
        return starts[-1]

    def _path(self, start: int) -> Path:
        return _path(self._folder, start)


def _path(folder: Path, start: int) -> Path:
    return folder / f"{start:020d}{SUFFIX}"


def _segments(folder: Path, files: Files) -> list[int]:
    names = [name for name in files.names(folder) if name.endswith(SUFFIX)]
    return [int(name.removesuffix(SUFFIX)) for name in names]


def _damaged(path: Path, offset: int, why: str) -> StateError:
    return log_damaged(f"{path}, byte {offset}", why)


def log_damaged(where: str, why: str) -> StateError:
    """The error for a log that is not what was written."""
    return StateError(
        f"the log is damaged: {why}",
        code="STATE_LOG_DAMAGED",
        hint="restore the file from a copy, or open a checkpoint: flow.restore(path)",
        where=where,
    )
