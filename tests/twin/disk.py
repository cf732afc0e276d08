"""A disk that dies: at one of its calls, with what was not synced lost or torn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.state.files import LocalFiles, Parts, put_by_rename


class PowerCut(BaseException):
    """The machine is off."""


class DyingDisk:
    """The files of a folder until the n-th call that changes something; after that nothing is written any more.

    The call at which it dies is done in half, and what was written but not synced is cut to a part of it: `remains` of 0 loses all of it,
    1 keeps it. Names that were not synced are lost when `remains` is 0.
    """

    def __init__(self, calls: int, remains: float = 1.0) -> None:
        self._files = LocalFiles()
        self._left = calls
        self._remains = remains
        self._paths: dict[int, Path] = {}
        self._synced: dict[Path, int] = {}  # sizes up to which content is safe
        self._new: dict[Path, set[Path]] = {}  # names in a folder that are not safe yet
        self.dead = False

    def _call(self) -> bool:
        """Whether the disk dies in this call."""
        if self.dead:
            raise PowerCut
        self._left -= 1
        self.dead = self._left == 0
        return self.dead

    def _die(self) -> None:
        for path, size in self._synced.items():
            if path.exists():
                written = path.stat().st_size
                if written > size:
                    with open(path, "rb+") as file:
                        file.truncate(size + int((written - size) * self._remains))
        if self._remains == 0:
            for names in self._new.values():
                for path in names:
                    path.unlink(missing_ok=True)
        raise PowerCut

    def create(self, path: Path) -> int:
        if self._call():
            self._die()
        if not path.exists():
            self._new.setdefault(path.parent, set()).add(path)
        handle = self._files.create(path)
        self._paths[handle] = path
        self._synced.setdefault(path, path.stat().st_size)
        return handle

    def append(self, handle: int, content: bytes) -> None:
        if self._call():
            self._files.append(handle, content[: len(content) // 2])
            self._die()
        self._files.append(handle, content)

    def truncate(self, handle: int, size: int) -> None:
        if self._call():
            self._die()
        self._files.truncate(handle, size)
        self._synced[self._paths[handle]] = min(size, self._synced[self._paths[handle]])

    def sync(self, handle: int) -> None:
        if self._call():
            self._die()
        self._files.sync(handle)
        self._synced[self._paths[handle]] = self._paths[handle].stat().st_size

    def close(self, handle: int) -> None:
        self._files.close(handle)

    def write(self, path: Path, parts: Parts) -> None:
        self._new.setdefault(path.parent, set()).add(path)
        if self._call():
            content = b"".join(bytes(part) for part in parts)
            self._synced[path] = 0
            path.write_bytes(content[: len(content) // 2])
            self._die()
        self._files.write(path, parts)

    def put(self, path: Path, parts: Parts) -> None:
        put_by_rename(self, path, parts)

    def read(self, path: Path) -> bytes:
        return self._files.read(path)

    def local(self, path: Path) -> Path:
        return self._files.local(path)

    def location(self, path: Path) -> str:
        return self._files.location(path)

    def replace(self, path: Path, target: Path) -> None:
        if self._call():
            self._die()
        self._files.replace(path, target)
        if path in self._new.get(path.parent, ()):
            self._new[path.parent].discard(path)

    def remove(self, path: Path) -> None:
        if self._call():
            self._die()
        self._files.remove(path)

    def make_folder(self, path: Path) -> None:
        self._files.make_folder(path)

    def sync_folder(self, path: Path) -> None:
        if self._call():
            self._die()
        self._new.pop(path, None)

    def names(self, path: Path) -> list[str]:
        if self.dead:
            raise PowerCut
        return self._files.names(path)

    def size(self, path: Path) -> int:
        return self._files.size(path)


def reopened(**options: Any) -> DyingDisk:
    """A disk that does not die."""
    return DyingDisk(-1, **options)
