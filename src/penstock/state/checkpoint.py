"""Checkpoints in a folder: a manifest each, and data files that several of them may share.

    checkpoint-000007.json    the manifest of the seventh checkpoint: what it holds, and where its arrays are
    data-000007.bin           the arrays that the seventh checkpoint had to write

A checkpoint is there when its manifest has its name: it is written under another one, synced, and renamed. So a crash at any moment leaves the
last whole checkpoint, and at most files that no manifest mentions, which the next checkpoint takes away.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import StateError
from penstock.state.data_file import (
    ImageReader,
    ImageWriter,
    Json,
    WrittenArray,
    damaged,
    extents,
    written_arrays,
)
from penstock.state.files import Files, LocalFiles
from penstock.state.state import Image

FORMAT = "penstock checkpoint"
VERSION = 1
_MANIFEST = re.compile(r"checkpoint-(\d{6,})\.json")
_OURS = re.compile(r"(checkpoint-\d{6,}\.json(\.part)?|data-\d{6,}\.bin)")


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
class Staged:
    """A checkpoint that is to be written: everything is noted, and ticks may go on."""

    number: int
    flow: Mapping[str, Any]
    states: dict[str, Json]
    writer: ImageWriter


class CheckpointFolder:
    """The checkpoints of one folder, for one writer and one flow."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.folder = folder
        self._files = files or LocalFiles()
        self._name = uuid.uuid4().hex  # under which slot arrays remember what they have to write here
        # The arrays of the last checkpoint that this object has written or restored; none when the last one has failed.
        self._written: Mapping[str, WrittenArray] = {}

    # Writing

    def stage(self, flow: Mapping[str, Any], images: Mapping[str, Image]) -> Staged:
        """Note what is to be written; called between ticks, and followed by `write`."""
        number = max(self.numbers(), default=0) + 1
        sparse = self._sparse_files()
        earlier = {path: one for path, one in self._written.items() if not one.files() & sparse}
        self._written = {}
        writer = ImageWriter(f"data-{number:06d}.bin", self._name, earlier)
        states = {name: writer.describe(name, image) for name, image in images.items()}
        return Staged(number, flow, states, writer)

    def write(self, staged: Staged, *, keep: int | None = None) -> Manifest:
        """Write a checkpoint, and take away all but the newest `keep`, or none; ticks may go on meanwhile.

        After an error the next checkpoint writes everything.
        """
        files, folder = self._files, self.folder
        files.make_folder(folder)
        files.write(folder / f"data-{staged.number:06d}.bin", staged.writer.content())
        manifest = Manifest(staged.number, staged.flow, staged.states)
        target = folder / f"checkpoint-{staged.number:06d}.json"
        part = target.with_suffix(".json.part")
        files.write(part, [memoryview(_encode(manifest))])
        files.sync_folder(folder)
        files.replace(part, target)
        files.sync_folder(folder)
        self._written = staged.writer.written
        if keep is not None:
            self.prune(keep)
        return manifest

    def _sparse_files(self) -> set[str]:
        """The data files of which less than half is still in use: what is in use of them is written again, so that they can go."""
        used: dict[str, int] = {}
        for written in self._written.values():
            for extent in written.extents():
                used[extent["file"]] = used.get(extent["file"], 0) + extent["bytes"]
        sizes = {name: self._files.size(self.folder / name) for name in used}
        return {name for name, size in used.items() if size * 2 < sizes[name]}

    def prune(self, keep: int) -> None:
        """Take away old checkpoints, then the files that none of the others needs."""
        numbers = self.numbers()
        for number in numbers[: -max(keep, 1)]:
            self._files.remove(self._path(number))
        needed: set[str] = set()
        for number in numbers[-max(keep, 1) :]:
            needed |= {self._path(number).name} | self.read(number).files()
        for name in self._files.names(self.folder):
            if _OURS.fullmatch(name) and name not in needed:
                self._files.remove(self.folder / name)

    # Reading

    def numbers(self) -> list[int]:
        """The checkpoints that are there, ascending."""
        matches = (_MANIFEST.fullmatch(name) for name in self._files.names(self.folder))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, number: int) -> Manifest:
        """The manifest of a checkpoint; StateError when it is not one of ours, of another version, or damaged."""
        path = self._path(number)
        try:
            head, _, content = path.read_bytes().partition(b"\n")
            written = json.loads(head)
            is_ours = written["format"] == FORMAT
        except (ValueError, TypeError, KeyError):
            is_ours = False
        except OSError as error:
            raise damaged(path, "the manifest", f"cannot be read: {error}") from None
        if not is_ours:
            raise damaged(path, "the manifest", "is none of penstock's, or its beginning is damaged")
        if written["version"] != VERSION:
            raise StateError(
                f"{path.name} has version {written['version']!r}; this penstock reads version {VERSION}",
                code="STATE_CHECKPOINT_VERSION",
                hint="open it with the version that wrote it, and take checkpoint_full(path), which later versions read",
                where=str(path),
            )
        if zlib.crc32(content) != written["crc"]:
            raise damaged(path, "the manifest", "has another checksum")
        saved = json.loads(content)
        return Manifest(number, saved["flow"], saved["states"])

    def images(self, manifest: Manifest) -> dict[str, Image]:
        """The states of a checkpoint, by their names; StateError when a byte of them is damaged."""
        reader = ImageReader(self.folder)
        reader.verify(list(manifest.states.values()))
        return {name: reader.image(described) for name, described in manifest.states.items()}

    def continue_from(
        self, manifest: Manifest, read: Mapping[str, Image], restored: Mapping[str, Image]
    ) -> None:
        """Let the next checkpoint write what changes from now on.

        `read` are the states as `images` gave them, and `restored` those that were loaded from there, saved again before any tick.
        """
        self._written = {
            path: written
            for name, image in restored.items()
            for path, written in written_arrays(name, manifest.states[name], read[name], image)
        }
        # Slot arrays remember from now on what is written to them.
        writer = ImageWriter("", self._name, {})
        for name, image in restored.items():
            writer.describe(name, image)

    def _path(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06d}.json"


def _encode(manifest: Manifest) -> bytes:
    """A line that says what this is, and the content."""
    content = json.dumps(
        {"flow": manifest.flow, "states": manifest.states}, allow_nan=False, separators=(",", ":")
    ).encode()
    head = {"format": FORMAT, "version": VERSION, "number": manifest.number, "crc": zlib.crc32(content)}
    return json.dumps(head).encode() + b"\n" + content
