"""Scratch files: where state lies that has no room in memory.

A scratch file has no name and is never synced: the system takes it away when the last array that lies in it is gone,
also when the process dies. Its pages are written to the disk and leave the memory when the system needs room. All
bytes are allocated before they are written, because a full disk could not be told from a fault of the machine
afterwards.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.space import RESERVED, map_shared

LEAST = 1 << 16  # bytes from which an array is worth a file
_ALIGNED = 64
_CURRENT: ContextVar[Scratch | None] = ContextVar("scratch", default=None)

NewArray = Callable[[int, npt.DTypeLike], npt.NDArray[Any]]
"""Makes an array of so many elements of a type, whose content is not defined."""


class ScratchFiles(Protocol):
    """What scratch files ask of a disk. Tests put faults here."""

    def create(self, folder: Path) -> int:
        """Make a file without a name and return its handle."""

    def allocate(self, handle: int, size: int) -> None:
        """Give a file this many bytes on the disk; OSError when there is no room."""


class LocalScratchFiles:
    """The disk of this machine."""

    def create(self, folder: Path) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix="scratch-", buffering=0) as file:
            return os.dup(file.fileno())

    def allocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)


class Region:
    """One file of a fixed size, from which arrays are cut one behind the other; what does not fit gets a file of its own."""

    __slots__ = ("_at", "_map", "_scratch")

    def __init__(self, scratch: Scratch, space: mmap.mmap) -> None:
        self._scratch = scratch
        self._map = space
        self._at = 0

    def empty(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of so many elements."""
        kind = np.dtype(dtype)
        if count == 0:
            return np.empty(0, kind)
        size, at = count * kind.itemsize, self._at
        if at + size > len(self._map):
            return self._scratch.region(size).empty(count, kind)
        self._at = -(-(at + size) // _ALIGNED) * _ALIGNED
        return np.frombuffer(self._map, kind, count, at)

    def copied(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array with the same elements."""
        copy = self.empty(len(array), array.dtype)
        copy[:] = array
        return copy


class GrowingFile:
    """A file under one array that grows: its address space is reserved, its bytes are allocated when the array needs them."""

    __slots__ = ("_handle", "_map", "_scratch")

    def __init__(self, scratch: Scratch, size: int) -> None:
        self._scratch = scratch
        self._handle = -1
        self._handle = scratch.create()
        scratch.allocate(self._handle, size)
        with _scratch_errors(scratch.folder):
            reserved = max(RESERVED, 2 * size)
            os.ftruncate(self._handle, reserved)
            self._map = map_shared(self._handle, reserved)

    def allocate(self, size: int) -> None:
        """Have this many bytes on the disk."""
        self._scratch.allocate(self._handle, size)

    def rows(self, dtype: np.dtype[Any], width: tuple[int, ...]) -> npt.NDArray[Any]:
        """The whole address space as an array; only rows that are allocated may be touched. They are zero."""
        row = dtype.itemsize * prod(width)
        return np.frombuffer(self._map, dtype, len(self._map) // row * prod(width)).reshape(-1, *width)

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)


class Scratch:
    """The scratch files of one flow, and how many bytes of its state may lie in memory."""

    __slots__ = ("_files", "budget", "folder", "least", "resident")

    def __init__(
        self, folder: Path, budget: int, *, files: ScratchFiles | None = None, least: int = LEAST
    ) -> None:
        self.folder = folder
        self.budget = budget
        self.least = least
        self._files = files or LocalScratchFiles()
        self.resident = 0
        """Bytes of state in memory: as they were last counted, and what has been promised room since."""

    def takes(self, size: int) -> bool:
        """Whether so many more bytes of state should lie in a file; otherwise they are counted as bytes in memory."""
        if size >= self.least and self.resident + size > self.budget:
            return True
        self.resident += size
        return False

    def region(self, size: int) -> Region:
        """A file of this size, at least one byte."""
        handle = self.create()
        try:
            self.allocate(handle, size)
            with _scratch_errors(self.folder):
                return Region(self, map_shared(handle, size))
        finally:
            os.close(handle)

    def growing(self, size: int) -> GrowingFile:
        """A file under an array that has this size now."""
        return GrowingFile(self, size)

    def create(self) -> int:
        """The handle of a new file."""
        with _scratch_errors(self.folder):
            return self._files.create(self.folder)

    def allocate(self, handle: int, size: int) -> None:
        """Give a file this many bytes on the disk."""
        with _scratch_errors(self.folder):
            self._files.allocate(handle, size)


def remove_leftovers(folder: Path) -> None:
    """Take away scratch files that a process has left in a folder that nobody else uses.

    Where a file system has no files without names, one has its name for a moment, in which the process may die.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _scratch_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"state that has no room in memory cannot be written to a scratch file: {error.strerror or error}",
            code="FLOW_SCRATCH",
            hint="free room on the disk, or give the flow more memory=; nothing has changed",
            where=str(folder),
        ) from error


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the state that lies in memory, and how it moves into a scratch file; called between ticks.

    When a move raises, the state is what it was. `written` is one that ticks write to: its pages go to the disk again and again.
    """

    size: int
    move: Callable[[Scratch], None]
    written: bool = False


@contextlib.contextmanager
def using(scratch: Scratch) -> Iterator[None]:
    """Let merges and loaded arrays in this context ask these scratch files for room."""
    token = _CURRENT.set(scratch)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def with_room(size: int) -> Scratch | None:
    """The scratch files that should take so many more bytes of state; None when they have room in memory."""
    scratch = _CURRENT.get()
    return scratch if scratch is not None and scratch.takes(size) else None


def room_for(sizes: Iterable[int]) -> int:
    """The size of a region that arrays of these sizes fit into."""
    return max(1, sum(size + _ALIGNED for size in sizes))


def moved_columns(columns: tuple[pa.Array, ...], scratch: Scratch) -> tuple[pa.Array, ...]:
    """The same columns, of any type, in a scratch file."""
    if not columns:
        return ()
    batch = pa.record_batch(list(columns), [str(at) for at in range(len(columns))])
    counted = pa.MockOutputStream()
    _write(counted, batch)
    content = pa.py_buffer(scratch.region(counted.size()).empty(counted.size(), np.uint8))
    _write(pa.FixedSizeBufferWriter(content), batch)
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        return tuple(reader.read_next_batch().columns)


def _write(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
