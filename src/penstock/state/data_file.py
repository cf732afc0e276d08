"""The arrays of states in data files: written one behind the other, read by mapping them.

A data file is a sequence of extents. An extent is the bytes of a NumPy array or an Arrow stream of one column, at a
multiple of 64, or at a page when a slot array is mapped from it. The manifest of a checkpoint says of every array
where its extents are, of which type, and their checksums: a run is one extent for each of its columns, written once;
a slot array is an extent with all rows and patches with the slots that later checkpoints wrote.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.files import Files
from penstock.state.slot_array import ChangedSlots, MappedRows, Version
from penstock.state.state import Image

_ALIGNED = 64
_PIECE = 1 << 24  # bytes of an array that are written at once
_MAPPED_FROM = 1 << 16  # bytes of a slot array from which it is mapped, and patched when it changes
_MOST_PATCHES = (
    16  # a slot array is written anew when it would have more, or when they would be larger than itself
)
_MOST_UNUSED = 0.5  # of the bytes of data files
_READERS = 4

Json = dict[str, Any]
Content = Callable[[], Iterator[memoryview]]


@dataclass(frozen=True, slots=True)
class WrittenArray:
    """An array that a checkpoint has: how it is described there, and which one it is; a slot array knows itself what
    has changed."""

    described: Json
    array: ref[Any] | None = None

    def is_of(self, array: Any) -> bool:
        """Whether this is the array that was written, and not another one under its name."""
        return self.array is not None and self.array() is array

    def extents(self) -> Iterator[Json]:
        """Where it is."""
        return _extents(self.described)

    def files(self) -> set[str]:
        """The data files that have a part of it."""
        return {extent["file"] for extent in self.extents()}


def sparse_files(arrays: Iterable[WrittenArray], sizes: Mapping[str, int]) -> set[str]:
    """Data files that the arrays use little of: what they use is to be written again, so that the files can go.

    Only as many as are needed for half of all bytes to be in use: the small files of checkpoints become sparse soon,
    and what they still have would be written again and again.
    """
    used: dict[str, int] = {}
    for array in arrays:
        for extent in array.extents():
            used[extent["file"]] = used.get(extent["file"], 0) + extent["bytes"]
    in_use, present = sum(used.values()), sum(sizes[file] for file in used)
    sparse: set[str] = set()
    for file in sorted(used, key=lambda file: used[file] / max(sizes[file], 1)):
        if present - in_use <= _MOST_UNUSED * present:
            break
        sparse.add(file)
        present -= sizes[file] - used[file]
    return sparse


class ImageWriter:
    """Writes images of states into one data file.

    `describe` is called between ticks and takes microseconds: it notes what is to be written. `content` gives the
    bytes of the data file, in another thread if that is wanted, and completes the descriptions. `earlier` are the
    arrays of the checkpoint before, by their paths: what has not changed since is not written again.
    """

    def __init__(self, file: str, checkpoint: str, earlier: Mapping[str, WrittenArray]) -> None:
        self.file = file
        self._checkpoint = checkpoint
        self._earlier = earlier
        self._waiting: list[tuple[Json, Callable[[Json], Iterator[memoryview]]]] = []
        self._size = 0
        self.written: dict[str, WrittenArray] = {}
        """The arrays that a later checkpoint need not write again, by their paths."""

    def describe(self, path: str, image: Image) -> Json:
        """An image as JSON; the descriptions of arrays are complete when `content` has come to its end."""
        described: Json = {}
        if image.values:
            described["values"] = dict(image.values)
        if image.arrays:
            described["arrays"] = {
                name: self._array(f"{path}/{name}", array, fixed=image.fixed)
                for name, array in image.arrays.items()
            }
        if image.parts:
            described["parts"] = {
                role: self.describe(f"{path}/{role}", part) for role, part in image.parts.items()
            }
        return described

    def content(self) -> Iterator[memoryview]:
        """The bytes of the data file."""
        for described, write in self._waiting:
            yield from write(described)
        self._waiting.clear()

    @property
    def size(self) -> int:
        """Bytes of the data file so far."""
        return self._size

    def _array(self, path: str, array: Any, *, fixed: bool) -> Json:
        earlier = self._earlier.get(path)
        if isinstance(array, Version):
            changed = array.changes(self._checkpoint)
            described: Json = {}
            before = None if earlier is None else earlier.described
            self._waiting.append(
                (described, lambda described: self._slots(described, array, changed, before))
            )
            self.written[path] = WrittenArray(described)
            return described
        if fixed and earlier is not None and earlier.is_of(array):
            self.written[path] = earlier
            return earlier.described
        described = {}
        write = self._arrow if isinstance(array, pa.Array) else self._numpy
        self._waiting.append((described, lambda described: write(described, array)))
        if fixed:
            self.written[path] = WrittenArray(described, ref(array))
        return described

    def _slots(
        self, described: Json, version: Version, changed: ChangedSlots | None, earlier: Json | None
    ) -> Iterator[memoryview]:
        row = version.dtype.itemsize * int(np.prod(version.shape[1:], dtype=np.int64))
        if row * version.size < _MAPPED_FROM:
            yield from self._numpy(described, version)
            return
        if earlier is not None and changed is not None and "slots" in earlier:
            slots = changed.slots()
            slots = slots[slots < version.size]
            if version.size <= np.iinfo(np.int32).max:
                slots = slots.astype(np.int32)
            patches = earlier.get("patches", [])
            patched = earlier.get("patched", 0) + len(slots) * (row + slots.itemsize)
            if patched <= earlier["bytes"] and len(patches) < _MOST_PATCHES:
                described.update(earlier, rows=version.size, patched=patched)
                if len(slots):
                    patch: Json = {"slots": {}, "rows": {}}
                    described["patches"] = [*patches, patch]
                    yield from self._numpy(patch["slots"], slots)
                    yield from self._numpy(patch["rows"], version.at(slots))
                return
        pieces = max(1, _PIECE // max(1, row))
        shape, kind = version.shape, version.dtype

        def rows() -> Iterator[memoryview]:
            for start in range(0, version.size, pieces):
                yield _bytes(version.rows(start, min(start + pieces, version.size)))

        yield from self._extent(described, rows, align=mmap.ALLOCATIONGRANULARITY)
        described.update(type=_type_name(kind), shape=list(shape), rows=shape[0], slots=True)

    def _numpy(self, described: Json, rows: Any) -> Iterator[memoryview]:
        array = np.asarray(rows)
        content = _bytes(array)
        yield from self._extent(described, lambda: iter((content,)))
        described.update(type=_type_name(array.dtype), shape=list(array.shape))

    def _arrow(self, described: Json, array: pa.Array) -> Iterator[memoryview]:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([array], ["values"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = memoryview(sink.getvalue())
        yield from self._extent(described, lambda: iter((content,)))
        described["type"] = "arrow"

    def _extent(self, described: Json, content: Content, *, align: int = _ALIGNED) -> Iterator[memoryview]:
        gap = -self._size % align
        if gap:
            yield memoryview(bytes(gap))
        start = self._size + gap
        size, checksum = 0, 0
        for piece in content():
            checksum = zlib.crc32(piece, checksum)
            size += piece.nbytes
            yield piece
        self._size = start + size
        described.update(file=self.file, at=start, bytes=size, crc=checksum)


def _type_name(kind: np.dtype[Any]) -> Any:
    """A type of NumPy as JSON: its name, or the names and types of its fields."""
    return kind.str if kind.names is None else [[name, kind[name].str] for name in kind.names]


def _type(name: Any) -> np.dtype[Any]:
    return np.dtype(name if isinstance(name, str) else [tuple(part) for part in name])


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    plain = np.ascontiguousarray(array)
    return plain.reshape(-1).view(np.uint8).data if plain.size else memoryview(b"")


def extents(described: Json) -> Iterator[Json]:
    """All extents of an image, as JSON."""
    for array in described.get("arrays", {}).values():
        yield from _extents(array)
    for part in described.get("parts", {}).values():
        yield from extents(part)


def _extents(array: Json) -> Iterator[Json]:
    yield array
    for patch in array.get("patches", ()):
        yield patch["slots"]
        yield patch["rows"]


def written_arrays(
    path: str, described: Json, read: Image, restored: Image
) -> Iterator[tuple[str, WrittenArray]]:
    """The arrays of a state that was restored, by their paths, as far as they are still those that were read."""
    for name, array in described.get("arrays", {}).items():
        current = restored.arrays.get(name)
        if isinstance(current, Version):
            yield f"{path}/{name}", WrittenArray(array)
        elif current is not None and current is read.arrays[name]:
            yield f"{path}/{name}", WrittenArray(array, ref(current))
    for role, part in described.get("parts", {}).items():
        if role in restored.parts:
            yield from written_arrays(f"{path}/{role}", part, read.parts[role], restored.parts[role])


class ImageReader:
    """Reads images from the data files of a folder; arrays are maps of the files."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files
        self._buffers: dict[str, pa.Buffer] = {}
        self._mapping = Lock()

    def verify(self, described: Sequence[Json]) -> None:
        """Compare the checksums of all extents; StateError names the file and the place of one that is damaged."""
        with ThreadPoolExecutor(_READERS) as pool:
            for _ in pool.map(self._verify, [extent for image in described for extent in extents(image)]):
                pass

    def _verify(self, extent: Json) -> None:
        if zlib.crc32(self._buffer(extent)) != extent["crc"]:
            raise damaged(self._location(extent), f"byte {extent['at']}", "has another checksum")

    def image(self, described: Json) -> Image:
        """The image of its description."""
        return Image(
            described.get("values", {}),
            {name: self._array(array) for name, array in described.get("arrays", {}).items()},
            {role: self.image(part) for role, part in described.get("parts", {}).items()},
            mapped=True,
        )

    def _array(self, extent: Json) -> Any:
        if extent["type"] == "arrow":
            with pa.ipc.open_stream(pa.BufferReader(self._buffer(extent))) as reader:
                return reader.read_next_batch().column(0)
        if not extent.get("slots"):
            return self._numpy(extent)
        patches = tuple(
            (self._numpy(patch["slots"]), self._numpy(patch["rows"])) for patch in extent.get("patches", ())
        )
        return MappedRows(
            self._files.local(self._folder / extent["file"]),
            extent["at"],
            _type(extent["type"]),
            tuple(extent["shape"]),
            extent["rows"],
            patches,
        )

    def _numpy(self, extent: Json) -> np.ndarray[Any, Any]:
        content = self._buffer(extent)
        return np.frombuffer(content, _type(extent["type"])).reshape(extent["shape"])

    def _buffer(self, extent: Json) -> pa.Buffer:
        name = extent["file"]
        with self._mapping:
            if name not in self._buffers:
                try:
                    self._buffers[name] = map_file(self._files.local(self._folder / name))
                except OSError as error:
                    raise damaged(self._location(extent), "the file", f"cannot be read: {error}") from None
        content = self._buffers[name]
        if extent["at"] + extent["bytes"] > content.size:
            raise damaged(
                self._location(extent), f"byte {extent['at']}", f"is cut off at {content.size} bytes"
            )
        return content.slice(extent["at"], extent["bytes"])

    def _location(self, extent: Json) -> str:
        return self._files.location(self._folder / extent["file"])


def map_file(path: Path) -> pa.Buffer:
    """The content of a file of this machine, mapped into memory."""
    if path.stat().st_size == 0:
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def damaged(where: str, part: str, why: str) -> StateError:
    """The error for a file that is not what was written."""
    return StateError(
        f"the checkpoint is damaged: {part} of {where.rpartition('/')[2]} {why}",
        code="STATE_CHECKPOINT_DAMAGED",
        hint="restore an older checkpoint, or the file from a copy",
        where=where,
    )
