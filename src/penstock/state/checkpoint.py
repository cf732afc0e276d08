"""Checkpoints in a folder: a manifest each, and data files that several of them may share.

    checkpoint-000007.json    the manifest of the seventh checkpoint: what it holds, and where its arrays are
    data-000007.bin           the arrays that the seventh checkpoint had to write
    data-000007-2_9f31c04a.bin   those of the shard 2, where a flow is in shards

A checkpoint is there when its manifest has its name, which it gets in one moment. So a crash at any moment leaves the
last whole checkpoint, and at most files that no manifest mentions, which the next checkpoint takes away.

In a folder that several machines reach, an owner that does not know yet that it is none any more may still write. Its
files have its own name in theirs (`data-000007-w3.bin`), and a checkpoint counts only when a `Catalog` outside of the
folder names it; files are taken away only if they were there before the catalog took the new name, because those of a
next owner come later.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import StateError
from penstock.state.data_file import (
    ImageReader,
    ImageWriter,
    Json,
    WrittenArray,
    damaged,
    extents,
    sparse_files,
    written_arrays,
)
from penstock.state.files import Files, LocalFiles
from penstock.state.part import CheckpointOrder, CheckpointPart, RestoredPart
from penstock.state.state import Image

FORMAT = "penstock checkpoint"
VERSION = 1
_MANIFEST = re.compile(r"checkpoint-(\d{6,})(-\w+)?\.json")
_OURS = re.compile(r"(checkpoint-\d{6,}(-\w+)?\.json(\.part)?|data-\d{6,}(-\w+)?\.bin)")


class Catalog(Protocol):
    """Says which manifests of a folder count."""

    def names(self) -> list[str]:
        """The manifests that count, the newest last."""

    def publish(self, names: list[str]) -> None:
        """Let these count from now on, in one moment; StateError when somebody else owns the flow."""


class FolderCatalog:
    """The manifests of a folder with one writer: all that are there."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def names(self) -> list[str]:
        matches = (_MANIFEST.fullmatch(name) for name in self._files.names(self._folder))
        return [match[0] for match in sorted(filter(None, matches), key=lambda match: int(match[1]))]

    def publish(self, names: list[str]) -> None:
        """A manifest counts since it was put."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint: its number, what the flow says of itself, and the descriptions of its states by their names."""

    number: int
    flow: Mapping[str, Any]
    states: Mapping[str, Json]

    def files(self) -> set[str]:
        """The data files that it needs."""
        return {extent["file"] for image in self.states.values() for extent in extents(image)}


@dataclass(slots=True)
class StagedCheckpoint:
    """A checkpoint that is to be written: everything is noted, and ticks may go on."""

    number: int
    flow: Mapping[str, Any]
    states: dict[str, Json]
    writer: ImageWriter
    parts: Sequence[CheckpointPart] = ()

    def close(self) -> None:
        """It is not written any more."""
        for part in self.parts:
            part.close()


class CheckpointFolder:
    """The checkpoints of one folder, for one writer and one flow."""

    def __init__(
        self, folder: Path, files: Files | None = None, *, catalog: Catalog | None = None, writer: str = ""
    ) -> None:
        """`writer` is part of the names of files, where another writer may come."""
        self.folder = folder
        self._files = files or LocalFiles()
        self._catalog = catalog or FolderCatalog(folder, self._files)
        self._suffix = f"-{writer}" if writer else ""
        self._name = uuid.uuid4().hex  # under which slot arrays remember what they have to write here
        # The arrays of the last checkpoint that this object has written or restored; none when the last one has failed.
        self._written: Mapping[str, WrittenArray] = {}
        self._published: int | None = None  # the number of that checkpoint
        # The last number that was taken: nobody may know whether a checkpoint that failed counts, so its files stay
        # what they are.
        self._last = 0

    @property
    def location(self) -> str:
        """The folder as users write it."""
        return self._files.location(self.folder)

    # Writing

    def order(self) -> CheckpointOrder:
        """A new checkpoint, for those who have parts of it; called between ticks, and followed by `stage`."""
        numbers = (int(name.split("-")[1].removesuffix(".json")) for name in self.names())
        number = self._last = max([self._last, *numbers]) + 1
        base, self._published = self._published, None
        return CheckpointOrder(self._name, number, f"data-{number:06d}{self._suffix}", base)

    def stage(
        self,
        flow: Mapping[str, Any],
        images: Mapping[str, Image],
        *,
        order: CheckpointOrder | None = None,
        parts: Sequence[CheckpointPart] = (),
    ) -> StagedCheckpoint:
        """Note what is to be written; called between ticks, and followed by `write`. `parts` are those of the `order`."""
        order = order or self.order()
        files = {file for array in self._written.values() for file in array.files()}
        sizes = {file: self._files.size(self.folder / file) for file in files}
        sparse = sparse_files(self._written.values(), sizes)
        earlier = {path: array for path, array in self._written.items() if not array.files() & sparse}
        self._written = {}
        writer = ImageWriter(f"{order.stem}.bin", self._name, earlier)
        states = {name: writer.describe(name, image) for name, image in images.items()}
        return StagedCheckpoint(order.number, flow, states, writer, parts)

    def write(self, staged: StagedCheckpoint, *, keep: int | None = None) -> Manifest:
        """Write a checkpoint, and take away all but the newest `keep`, or none; ticks may go on meanwhile.

        After an error the next checkpoint writes everything.
        """
        files, folder = self._files, self.folder
        try:
            files.make_folder(folder)
            files.write(folder / staged.writer.file, staged.writer.content())
            states = dict(staged.states)
            for part in staged.parts:
                files.write(folder / part.file, part.content())
                states |= part.states()
        finally:
            staged.close()
        manifest = Manifest(staged.number, staged.flow, states)
        name = f"checkpoint-{staged.number:06d}{self._suffix}.json"
        names = [*(older for older in self.names() if older != name), name]
        if keep is not None:
            names = names[-max(keep, 1) :]
        files.put(folder / name, [memoryview(_encode(manifest))])
        present = files.names(folder)
        self._catalog.publish(names)
        self._written, self._published = staged.writer.written, staged.number
        if keep is not None:
            self._prune(names, present)
        return manifest

    def prune(self, keep: int) -> None:
        """Take away all but the newest `keep`."""
        names = self.names()[-max(keep, 1) :]
        present = self._files.names(self.folder)
        self._catalog.publish(names)
        self._prune(names, present)

    def _prune(self, names: Sequence[str], present: Sequence[str]) -> None:
        """Take away what was there and none of these checkpoints needs, manifests first."""
        needed = set(names)
        for name in names:
            needed |= self.read(name).files()
        ours = [name for name in present if _OURS.fullmatch(name) and name not in needed]
        for name in sorted(ours, key=lambda name: not name.startswith("checkpoint-")):
            self._files.remove(self.folder / name)

    # Reading

    def names(self) -> list[str]:
        """The manifests of the checkpoints that are there, the newest last."""
        return self._catalog.names()

    def read(self, name: str) -> Manifest:
        """The manifest of a checkpoint; StateError when it is not one of ours, of another version, or damaged."""
        path = self.folder / name
        where = self._files.location(path)
        try:
            head, _, content = self._files.read(path).partition(b"\n")
            written = json.loads(head)
            is_ours = written["format"] == FORMAT
        except (ValueError, TypeError, KeyError):
            is_ours = False
        except OSError as error:
            raise damaged(where, "the manifest", f"cannot be read: {error}") from None
        if not is_ours:
            raise damaged(where, "the manifest", "is none of penstock's, or its beginning is damaged")
        if written["version"] != VERSION:
            raise StateError(
                f"{path.name} has version {written['version']!r}; this penstock reads version {VERSION}",
                code="STATE_CHECKPOINT_VERSION",
                hint="open it with the version that wrote it, and take checkpoint_full(path), which later versions read",
                where=where,
            )
        if zlib.crc32(content) != written["crc"]:
            raise damaged(where, "the manifest", "has another checksum")
        saved = json.loads(content)
        return Manifest(written["number"], saved["flow"], saved["states"])

    def images(self, manifest: Manifest) -> dict[str, Image]:
        """The states of a checkpoint, by their names; StateError when a byte of them is damaged."""
        reader = ImageReader(self.folder, self._files)
        reader.verify(list(manifest.states.values()))
        return {name: reader.image(described) for name, described in manifest.states.items()}

    def continue_from(
        self, manifest: Manifest, read: Mapping[str, Image], restored: Mapping[str, Image]
    ) -> None:
        """Let the next checkpoint write what changes from now on.

        `read` are the states as `images` gave them, and `restored` those that were loaded from there, saved again
        before any tick.
        """
        self._published = manifest.number
        self._written = {
            path: written
            for name, image in restored.items()
            for path, written in written_arrays(name, manifest.states[name], read[name], image)
        }
        # Slot arrays remember from now on what is written to them.
        writer = ImageWriter("", self._name, {})
        for name, image in restored.items():
            writer.describe(name, image)

    def restored_part(self, manifest: Manifest, names: Collection[str]) -> RestoredPart:
        """Some states of a checkpoint that was read, for the shard that has loaded them."""
        states = {name: manifest.states[name] for name in names}
        files = {extent["file"] for image in states.values() for extent in extents(image)}
        sizes = {file: self._files.size(self.folder / file) for file in files}
        return RestoredPart(self._name, manifest.number, states, sizes)


def _encode(manifest: Manifest) -> bytes:
    """A line that says what this is, and the content."""
    content = json.dumps(
        {"flow": manifest.flow, "states": manifest.states}, allow_nan=False, separators=(",", ":")
    ).encode()
    head = {"format": FORMAT, "version": VERSION, "number": manifest.number, "crc": zlib.crc32(content)}
    return json.dumps(head).encode() + b"\n" + content
