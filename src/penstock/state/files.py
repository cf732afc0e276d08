"""The seam to storage: everything that is written to last goes through here.

`Files` are whole files, on a disk or in an object store; `AppendFiles` are files that grow, which only disks have. On
a disk a write is there after a crash when `sync` has returned; a name is, when `sync_folder` has. Tests put faults,
torn writes and lost writes here, so nothing that must last may go past it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

Parts = Iterable[bytes | memoryview]


class Files(Protocol):
    """What a checkpoint asks of storage: whole files by their paths."""

    def write(self, path: Path, parts: Parts) -> None:
        """Write a whole file, and return when its content lasts; an error may leave a part of it."""

    def put(self, path: Path, parts: Parts) -> None:
        """Write a whole file that others see whole or not at all, instead of the one of that name, and return when it lasts."""

    def read(self, path: Path) -> bytes:
        """The content of a file; FileNotFoundError when it is not there."""

    def local(self, path: Path) -> Path:
        """A file of this machine with the content of that one, to be mapped; FileNotFoundError when it is not there."""

    def remove(self, path: Path) -> None:
        """Take a file away, if it is there."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, if they are not there."""

    def sync_folder(self, path: Path) -> None:
        """Return when the names in a folder last."""

    def names(self, path: Path) -> list[str]:
        """The names in a folder, in their order; none when there is no folder."""

    def size(self, path: Path) -> int:
        """Bytes of a file; 0 when it is not there."""

    def location(self, path: Path) -> str:
        """The path as users write it."""


class AppendFiles(Files, Protocol):
    """What a log asks of a disk: files that grow."""

    def create(self, path: Path) -> int:
        """Make an empty file, or open the one that is there for appending, and return its handle."""

    def append(self, handle: int, content: bytes) -> None:
        """Write behind what is there; an error may leave a part of it."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file to a size."""

    def sync(self, handle: int) -> None:
        """Return when the content of a file is on the disk."""

    def close(self, handle: int) -> None:
        """Give a handle back."""

    def replace(self, path: Path, target: Path) -> None:
        """Let a file take the place of another one, in one moment."""


def put_by_rename(files: AppendFiles, path: Path, parts: Parts) -> None:
    """What `Files.put` is on a disk: the file is written under another name, and renamed when it lasts."""
    part = path.with_name(f"{path.name}.part")
    files.write(part, parts)
    files.sync_folder(path.parent)
    files.replace(part, path)
    files.sync_folder(path.parent)


class LocalFiles:
    """The disk of this machine."""

    def put(self, path: Path, parts: Parts) -> None:
        put_by_rename(self, path, parts)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def local(self, path: Path) -> Path:
        return path

    def location(self, path: Path) -> str:
        return str(path)

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, handle: int, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        # Data, and the size of the file, which is what is needed to read it again.
        getattr(os, "fdatasync", os.fsync)(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def write(self, path: Path, parts: Parts) -> None:
        with open(path, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, path: Path, target: Path) -> None:
        os.replace(path, target)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, path: Path) -> None:
        with _opened(path) as handle:
            os.fsync(handle)

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path)) if path.is_dir() else []

    def size(self, path: Path) -> int:
        return path.stat().st_size if path.exists() else 0


class ReadOnlyFiles(LocalFiles):
    """The disk of this machine for one who only looks: what another process has written is left as it is.

    Cutting off a record that is not whole does nothing here; the process that writes it has not finished it yet.
    """

    def create(self, path: Path) -> int:
        return -1

    def append(self, handle: int, content: bytes) -> None:
        raise PermissionError("the files are open for reading only")

    def truncate(self, handle: int, size: int) -> None:
        pass

    def sync(self, handle: int) -> None:
        pass

    def close(self, handle: int) -> None:
        pass

    def write(self, path: Path, parts: Iterable[bytes | memoryview]) -> None:
        raise PermissionError("the files are open for reading only")

    def replace(self, path: Path, target: Path) -> None:
        raise PermissionError("the files are open for reading only")

    def remove(self, path: Path) -> None:
        pass

    def make_folder(self, path: Path) -> None:
        pass


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)
