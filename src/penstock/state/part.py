"""Parts of a checkpoint: the states of a shard, which may be in another process, in a data file of their own.

The owner of the folder gives an order. Whoever has the states notes between ticks what of them has changed since the
last checkpoint, and gives the bytes while ticks go on. The owner writes them, and publishes the checkpoint when it
has all parts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.state.data_file import ImageWriter, Json, WrittenArray, sparse_files, written_arrays
from penstock.state.state import Image


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """A checkpoint that is to be taken: of which folder, its number, how its data files are called, and the last one
    there that counts, on which it builds."""

    folder: str
    number: int
    stem: str
    base: int | None = None

    def file(self, part: int) -> str:
        """A new name for the data file of a part: a shard that is lost and made again writes another one."""
        joint = "_" if self.stem.count("-") > 1 else "-"
        return f"{self.stem}{joint}{part}_{uuid.uuid4().hex[:8]}.bin"


class CheckpointPart(Protocol):
    """The states of one shard in a checkpoint that was ordered."""

    @property
    def file(self) -> str:
        """The name of the data file."""

    def content(self) -> Iterator[memoryview]:
        """The bytes of the data file, once; OSError when whoever has the states is gone."""

    def states(self) -> Mapping[str, Json]:
        """The descriptions of the states by their names; called behind `content`."""

    def close(self) -> None:
        """Nobody reads the rest."""


@dataclass(slots=True)
class StagedPart:
    """A part whose states are in this process."""

    number: int
    described: dict[str, Json]
    writer: ImageWriter
    owner: PartWriter

    @property
    def file(self) -> str:
        return self.writer.file

    def content(self) -> Iterator[memoryview]:
        return self.writer.content()

    def states(self) -> Mapping[str, Json]:
        self.owner.finished(self)
        return self.described

    def close(self) -> None:
        """There is nothing to give back."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What a checkpoint has of a shard: its arrays by their paths, and the sizes of the data files that they are in."""

    number: int | None = None
    arrays: Mapping[str, WrittenArray] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


class PartWriter:
    """Writes the states of one shard into the checkpoints of one folder."""

    def __init__(self) -> None:
        self._last = _Written()

    def stage(self, order: CheckpointOrder, images: Mapping[str, Image], part: int) -> StagedPart:
        """Note what is to be written; called between ticks. Without the checkpoint that the order builds on, that is
        everything."""
        last = self._last
        earlier: Mapping[str, WrittenArray] = {}
        if order.base is not None and order.base == last.number:
            sparse = sparse_files(last.arrays.values(), last.sizes)
            earlier = {path: array for path, array in last.arrays.items() if not array.files() & sparse}
        writer = ImageWriter(order.file(part), order.folder, earlier)
        described = {name: writer.describe(name, image) for name, image in images.items()}
        return StagedPart(order.number, described, writer, self)

    def finished(self, staged: StagedPart) -> None:
        """The owner of the folder has all bytes of a part: when its checkpoint counts, the next one builds on it."""
        arrays = staged.writer.written
        files = {file for array in arrays.values() for file in array.files()}
        sizes = {**self._last.sizes, staged.file: staged.writer.size}
        self._last = _Written(
            staged.number, arrays, {file: size for file, size in sizes.items() if file in files}
        )

    def continue_from(
        self, base: RestoredPart, read: Mapping[str, Image], restored: Mapping[str, Image]
    ) -> None:
        """Let the next checkpoint write what changes from now on.

        `read` are the states that were loaded, and `restored` those that were loaded from there, saved again before any tick.
        """
        common = base.states.keys() & read.keys() & restored.keys()
        arrays = {
            path: written
            for name in common
            for path, written in written_arrays(name, base.states[name], read[name], restored[name])
        }
        self._last = _Written(base.number, arrays, base.sizes)
        # Slot arrays remember from now on what is written to them.
        writer = ImageWriter("", base.folder, {})
        for name in common:
            writer.describe(name, restored[name])


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """What a checkpoint that was loaded has of a shard: its states as they are described there, and the sizes of its
    data files."""

    folder: str
    number: int
    states: Mapping[str, Json]
    sizes: Mapping[str, int]
