"""A full checkpoint in a folder: Parquet files, and one JSON document that says what they are.

    full-checkpoint.json               the manifest: format, version, checksum, what the flow says of itself, and the
    files with their sizes and checksums full-000002-orders-rows.parquet    rows

The layout is for other versions of penstock, and for other tools. The manifest is written last and takes the place of
the one before in one moment; the files that it does not mention go then. The checksum of the manifest is that of its
content with sorted keys and without blanks.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import StateError
from penstock.state import parquet_file
from penstock.state.data_file import Json, damaged, map_file
from penstock.state.files import Files

FORMAT = "penstock full checkpoint"
VERSION = 1
MANIFEST = "full-checkpoint.json"
_FILE = re.compile(r"full-(\d{6,})-.*\.parquet")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class CheckpointTable:
    """A table of a full checkpoint: the names of its columns, and a function that gives them."""

    label: str
    names: Sequence[str]
    columns: Callable[[], Sequence[pa.Array]]


class FullFolder:
    """The full checkpoint of one folder."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    @property
    def location(self) -> str:
        """The folder as users write it."""
        return self._files.location(self._folder)

    def exists(self) -> bool:
        """Whether there is one."""
        return MANIFEST in self._files.names(self._folder)

    # Writing

    def write(self, flow: Mapping[str, Any], tables: Mapping[str, CheckpointTable]) -> None:
        """Write the tables one by one, then the manifest; whatever moment it ends at, the folder has the last whole one."""
        files, folder = self._files, self._folder
        files.make_folder(folder)
        number = max(self._numbers(), default=0) + 1
        written: dict[str, Json] = {}
        for at, (key, table) in enumerate(tables.items()):
            name = f"full-{number:06d}-{at}-{_NOT_PLAIN.sub('_', table.label)[:60]}.parquet"
            written[key] = self._write_table(name, table)
        content = {"flow": flow, "files": written}
        manifest = {"format": FORMAT, "version": VERSION, "crc": _checksum(content), **content}
        files.put(folder / MANIFEST, [json.dumps(manifest, allow_nan=False, indent=1).encode()])
        needed = {entry["file"] for entry in written.values()}
        for name in files.names(folder):
            if _FILE.fullmatch(name) and name not in needed:
                files.remove(folder / name)

    def _write_table(self, name: str, table: CheckpointTable) -> Json:
        described: Json = {"file": name, "bytes": 0, "crc": 0}

        def parts() -> Iterator[bytes]:
            for piece in parquet_file.content(table.names, table.columns()):
                described["bytes"] += len(piece)
                described["crc"] = zlib.crc32(piece, described["crc"])
                yield piece

        try:
            self._files.write(self._folder / name, parts())
        except pa.ArrowNotImplementedError as error:
            raise StateError(
                f"Parquet has no type for a column of {table.label}: {error}",
                code="FLOW_NOT_SAVABLE",
                hint="flow.checkpoint(path) can save it",
                where=self.location,
            ) from error
        return described

    def _numbers(self) -> list[int]:
        matches = (_FILE.fullmatch(name) for name in self._files.names(self._folder))
        return [int(match[1]) for match in matches if match]

    # Reading

    def read(self) -> tuple[Json, Json]:
        """What the flow says of itself, and the descriptions of the files; StateError when a part is damaged, foreign
        or of another version."""
        where = self._files.location(self._folder / MANIFEST)
        try:
            manifest = json.loads(self._files.read(self._folder / MANIFEST))
            is_ours = manifest["format"] == FORMAT
            version = manifest["version"]
        except (ValueError, TypeError, KeyError):
            is_ours = False
        if not is_ours:
            raise damaged(where, "the manifest", "is none of penstock's, or is cut off")
        if version != VERSION:
            raise StateError(
                f"{MANIFEST} has version {version!r}; this penstock reads version {VERSION}",
                code="STATE_CHECKPOINT_VERSION",
                hint="a newer penstock has written it: open it with that one",
                where=where,
            )
        content = {"flow": manifest.get("flow"), "files": manifest.get("files")}
        if _checksum(content) != manifest.get("crc"):
            raise damaged(where, "the manifest", "has another checksum")
        for described in content["files"].values():
            self._content(described)
        return content["flow"], content["files"]

    def columns(self, described: Json, types: Sequence[pa.DataType]) -> list[pa.Array]:
        """The columns of a file."""
        try:
            return parquet_file.columns_of(self._content(described), types)
        except (pa.ArrowException, ValueError) as error:
            raise damaged(
                self._location(described), "the content", f"is not what it should be: {error}"
            ) from error

    def _content(self, described: Json) -> pa.Buffer:
        where = self._location(described)
        try:
            content = map_file(self._files.local(self._folder / described["file"]))
        except OSError as error:
            raise damaged(where, "the file", f"cannot be read: {error}") from None
        if content.size != described["bytes"]:
            raise damaged(where, "the file", f"has {content.size} bytes, expected {described['bytes']}")
        if zlib.crc32(content) != described["crc"]:
            raise damaged(where, "the file", "has another checksum")
        return content

    def _location(self, described: Json) -> str:
        return self._files.location(self._folder / described["file"])


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
