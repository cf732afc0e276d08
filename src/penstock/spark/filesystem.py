"""Files where Spark reads and writes them: local paths and object stores through one interface, Hadoop's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """A folder on any file system that Spark knows; names are relative to it, with slashes."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self.path = path
        self._new = jvm.org.apache.hadoop.fs.Path
        self._root = self._new(path)
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._copy = jvm.org.apache.hadoop.fs.FileUtil.copy
        self._files = self._root.getFileSystem(self._conf)
        self._qualified = self._files.makeQualified(self._root).toString().rstrip("/") + "/"

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return str(self._files.getScheme()) == "file"

    @property
    def url(self) -> str:
        """The whole address of it, as Spark writes it."""
        return str(self._qualified).rstrip("/")

    @property
    def is_file(self) -> bool:
        """Whether the path leads to a file, and to no folder."""
        return bool(self.exists() and self._files.getFileStatus(self._root).isFile())

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or a folder of that name."""
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        """The names of what is in a folder; none when it is not there."""
        if not self.exists(name):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._at(name))]

    def walk(self, name: str = "") -> Iterator[str]:
        """All files below a folder, by their paths from the root."""
        if not self.exists(name):
            return
        listing = self._files.listFiles(self._at(name), True)
        while listing.hasNext():
            yield listing.next().getPath().toString().removeprefix(self._qualified)

    def move(self, old: str, new: str) -> None:
        """Give a file another place, in a folder that is made when it is missing."""
        target = self._at(new)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._at(old), target):
            raise OSError(f"cannot move {self._at(old).toString()} to {target.toString()}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens when it is not there."""
        self._files.delete(self._at(name), True)

    def copy(self, name: str, target: Folder, new: str) -> None:
        """Copy a file, or a folder with all that is in it, into another folder."""
        self._copy(self._files, self._at(name), target._files, target._at(new), False, True, self._conf)

    def write(self, name: str, content: str) -> None:
        """Write a small file; an older one is replaced."""
        stream = self._files.create(self._at(name), True)
        try:
            stream.write(content.encode())
        finally:
            stream.close()

    def read(self, name: str) -> str:
        """Return the content of a small file."""
        stream = self._files.open(self._at(name))
        try:
            content: bytes = bytes(stream.readAllBytes())
            return content.decode()
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._new(self._root, name) if name else self._root
