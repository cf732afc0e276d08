"""An array with one row per slot, written in one way, so that every write can be undone, versioned and counted.

`put` keeps the old rows of the slots that it writes. They undo the tick, and they are the before-images of every
version that somebody has (a snapshot, a checkpoint), so that readers and ticks do not wait for each other. After a
checkpoint the slots that are written are remembered: the next checkpoint writes those alone. The unit is the slot,
not the page: a thousand random rows touch a thousand pages of any size.

To NumPy the array is one contiguous piece: a gather is `data[slots]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from os import PathLike
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from penstock.data.arrays import Numbers, Positions
from penstock.errors import StateError
from penstock.state.limits import LIMITS
from penstock.state.scratch import GrowingFile, Piece, Scratch, with_room
from penstock.state.space import grown, mapped
from penstock.state.state import Image, Leaf, numpy_array

_FEW = 256


class SlotArray(Leaf):
    """Rows by slot. Nobody writes to `data` but this class."""

    __slots__ = ("_committed", "_file", "_space", "_trackers", "_undo", "_versions", "data", "size")

    def __init__(self, dtype: npt.DTypeLike, width: int = 0) -> None:
        self._versions: list[ref[Version]] = []
        self._use(np.zeros((_FEW, width) if width else _FEW, dtype), 0)

    def _use(self, space: Numbers, size: int, file: GrowingFile | None = None) -> None:
        self._file = file  # the scratch file that the rows lie in, if they do
        self._space = space
        self._trackers: dict[str, ChangedSlots] = {}  # by checkpoint
        self.data: Numbers = space[: max(size, _FEW)]
        self.size = self._committed = size  # slots below this one are in use
        self._undo: list[tuple[Positions, Numbers | None]] = []

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`; new rows are zero."""
        if size > self.size:
            self.size = size
            if size > len(self.data):
                data, space = grown(self.data, self._space, size)
                if self._file is not None and space is self._space:
                    self._file.allocate(data.nbytes)
                elif self._file is not None:
                    self._file = None  # the rows have outgrown its space
                self.data, self._space = data, space

    def put(self, slots: Positions, rows: Numbers | int | bool, old: Numbers | None = None) -> None:
        """Write rows to different slots; `old` is what stands there, from a caller who has read it."""
        if old is None:
            old = self.data[slots]
        self._undo.append((slots, old))
        if self._versions:
            for version in self._open_versions():
                version.images.append((slots, old))
        self.data[slots] = rows

    def append(self, start: int, rows: Numbers) -> None:
        """Write rows to the slots from `start` on, which no committed row has ever had: there is nothing to undo."""
        end = start + len(rows)
        if self._versions:
            for version in self._open_versions():
                if start < version.size:
                    version.images.append((np.arange(start, end), self.data[start:end].copy()))
        if self._trackers:
            self._undo.append((np.arange(start, end), None))
        self.data[start:end] = rows

    def assign(self, slots: Positions, rows: Numbers, reused: int) -> None:
        """Write rows to slots that were just taken: the first `reused` ones were used before, the others are new, one by one."""
        if reused:
            self.put(slots[:reused], rows[:reused])
        if reused < len(slots):
            self.append(int(slots[reused]), rows[reused:])

    def add(self, slots: Positions, groups: Positions, values: Numbers) -> tuple[Numbers, Numbers]:
        """Add values to the rows at slots, value i to the row at `slots[groups[i]]`; return the rows before and after."""
        old = self.data[slots]
        new = old.copy()
        np.add.at(new, groups, values)
        self.put(slots, new, old)
        return old, new

    def commit(self) -> None:
        for tracker in self._trackers.values():
            for slots, _ in self._undo:
                tracker.add(slots)
        self._undo.clear()
        self._committed = self.size

    def maintain(self, fuel: int) -> None:
        """Bring the changed slots together when there are many."""
        for tracker in self._trackers.values():
            tracker.maintain()

    def rollback(self) -> None:
        if self.size > self._committed:
            # Rows behind the slots in use are zero, always.
            self.data[self._committed : self.size] = 0
            self.size = self._committed
        while self._undo:
            slots, old = self._undo[-1]
            if old is not None:
                self.data[slots] = old
            self._undo.pop()

    def memory(self) -> int:
        """Bytes of the slots in use."""
        return int(self.size * self.data.itemsize * (self.data.shape[1] if self.data.ndim > 1 else 1))

    def mapped(self) -> int:
        return 0 if self._file is None else self.memory()

    def pieces(self) -> Iterator[Piece]:
        if self._file is None:
            yield Piece(self.memory(), self._move, written=True)

    def _move(self, scratch: Scratch) -> None:
        """Lie in a scratch file. Versions read either the old rows or the new ones, which are the same."""
        file = scratch.growing(self.data.nbytes)
        space = file.rows(self.data.dtype, self.data.shape[1:])
        space[: self.size] = self.data[: self.size]
        self._file = file
        self._space = space
        self.data = space[: len(self.data)]

    def version(self) -> Version:
        """The rows as they are now, for as long as somebody has the version. Called between ticks."""
        version = Version(self)
        self._versions.append(ref(version))
        return version

    def _open_versions(self) -> list[Version]:
        """The versions that somebody still has."""
        versions = [version for reference in self._versions if (version := reference()) is not None]
        if len(versions) < len(self._versions):
            self._versions = [ref(version) for version in versions]
        return versions

    def track(self, checkpoint: str) -> ChangedSlots | None:
        """Remember for a checkpoint which slots are written from now on, because it gets all rows as they are now.

        Returns the slots that were written since the last call for the same checkpoint; None when all may have been.
        """
        before = self._trackers.get(checkpoint)
        self._trackers[checkpoint] = ChangedSlots()
        return before

    def untrack(self, checkpoint: str) -> None:
        """Remember nothing more for a checkpoint."""
        self._trackers.pop(checkpoint, None)

    def save(self) -> Image:
        return Image(arrays={"rows": self.version()})

    def load(self, image: Image) -> None:
        saved = image.arrays["rows"]
        if isinstance(saved, MappedRows):
            self._load_mapped(saved)
            return
        rows = numpy_array(image, "rows")
        self._require(rows.dtype, rows.shape[1:])
        if isinstance(saved, Version) and len(rows) >= _FEW:
            self._use(rows, len(rows))  # a copy already
        else:
            self._use(np.zeros((_FEW, *rows.shape[1:]), rows.dtype), 0)
            self.reserve(len(rows))
            self.data[: len(rows)] = rows
            self._committed = self.size

    def _load_mapped(self, saved: MappedRows) -> None:
        """Be the rows of a file, mapped privately, with some slots written over."""
        self._require(saved.dtype, saved.shape[1:])
        size = saved.shape[0]
        scratch = with_room(saved.nbytes)
        if scratch is not None:
            self._load_copied(saved, scratch)
            return
        space = saved.mapped()
        if size < _FEW:
            space, _ = grown(space[:size], space[:size], _FEW)
        self._use(space, size)
        self.reserve(saved.size)
        for slots, rows in saved.patches:
            self.data[slots] = rows
        self._committed = self.size

    def _load_copied(self, saved: MappedRows, scratch: Scratch) -> None:
        """Be the rows of a file, in a scratch file: what is written to a private map would stay in memory."""
        file = scratch.growing(max(saved.nbytes, _FEW * saved.row_bytes))
        space = file.rows(saved.dtype, saved.shape[1:])
        saved.copy_to(space)
        self._use(space, max(saved.size, saved.shape[0]), file)

    def _require(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if dtype != self.data.dtype or shape != self.data.shape[1:]:
            raise StateError(
                f"a saved array has rows of {dtype} {shape}, expected {self.data.dtype} {self.data.shape[1:]}",
                code="STATE_SHAPE",
            )


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows in a part of a file that begins at a page, and what was written to some slots later, the oldest first."""

    path: str | PathLike[str]
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of the rows in the file
    size: int  # rows, with those that only patches have
    patches: tuple[tuple[Positions, Numbers], ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.row_bytes * max(self.size, self.shape[0])

    def mapped(self) -> Numbers:
        """The rows of the file with space behind them; writes do not reach the file."""
        return mapped(self.path, self.dtype, self.shape, offset=self.offset)

    def copy_to(self, rows: Numbers) -> None:
        """Write all rows to the beginning of an array."""
        if self.shape[0]:
            rows[: self.shape[0]] = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        for slots, patch in self.patches:
            rows[slots] = patch

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows, for NumPy."""
        rows = np.zeros((max(self.size, self.shape[0]), *self.shape[1:]), self.dtype)
        self.copy_to(rows)
        return np.asarray(rows, dtype)


class Version:
    """The rows of a slot array at one moment; ticks may write meanwhile, in another thread too."""

    __slots__ = ("__weakref__", "_array", "images", "size")

    def __init__(self, array: SlotArray) -> None:
        self._array = array
        self.size = array.size
        self.images: list[tuple[Positions, Numbers]] = []  # what was written over, the oldest first

    def rows(self, begin: int, end: int) -> Numbers:
        """The rows of the slots from `begin` to `end`."""
        # An image is there before its slot is written, so whatever was written before this copy is put right after it.
        rows = self._array.data[begin:end].copy()
        for slots, old in reversed(tuple(self.images)):
            inside = (slots >= begin) & (slots < end)
            rows[slots[inside] - begin] = old[inside]
        return rows

    def at(self, slots: Positions) -> Numbers:
        """The rows of some slots, which ascend."""
        rows = self._array.data[slots]
        for written, old in reversed(tuple(self.images)):
            positions = np.searchsorted(slots, written)
            inside = positions < len(slots)
            inside[inside] = slots[positions[inside]] == written[inside]
            rows[positions[inside]] = old[inside]
        return rows

    def changes(self, checkpoint: str) -> ChangedSlots | None:
        """Which slots a checkpoint of this version must write, None for all; called between ticks, once."""
        return self._array.track(checkpoint)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the rows' elements."""
        return self._array.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the width of one."""
        return (self.size, *self._array.data.shape[1:])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows, for NumPy."""
        return np.asarray(self.rows(0, self.size), dtype)


class ChangedSlots:
    """A set of slots: a bit for each, set when many have come together."""

    __slots__ = ("_bits", "_count", "_recent")

    def __init__(self) -> None:
        self._bits = np.zeros(0, np.bool_)
        self._recent: list[Positions] = []
        self._count = 0

    def add(self, slots: Positions) -> None:
        """Put slots into the set: part of a commit, so nothing is made ready here."""
        self._recent.append(slots)
        self._count += len(slots)

    def maintain(self) -> None:
        """Set the bits once many slots have come. It may fail at any place, and be called again."""
        if self._count >= LIMITS.fold_from:
            self._fold()

    def slots(self) -> Positions:
        """All slots, ascending."""
        self._fold()
        return self._bits.nonzero()[0]

    def _fold(self) -> None:
        if not self._recent:
            return
        slots = np.concatenate(self._recent)
        most = int(slots.max(initial=-1)) + 1
        if most > len(self._bits):
            bits = np.zeros(most + most // 8, np.bool_)
            bits[: len(self._bits)] = self._bits
            self._bits = bits
        self._bits[slots] = True
        self._recent.clear()
        self._count = 0
