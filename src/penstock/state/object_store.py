"""Whole files in an object store, through PyArrow's file systems: a put is there whole or not at all, and names need no syncing.

Files that are to be mapped are downloaded first, into a folder that belongs to this process and goes with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from penstock.errors import ConnectorError
from penstock.state.files import Parts

_PIECE = 1 << 24
_LOCK = "lock"


_ACCESS = {
    "s3": "the endpoint and the keys are those of sources and sinks: "
    "spark.hadoop.fs.s3a.endpoint, .access.key, .secret.key, or AWS_*",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS names the key file of a service account; or run "
    "`gcloud auth application-default login`; a public bucket is "
    "gs://anonymous@bucket/prefix",
    "abfs": "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, a managed identity or `az "
    "login` give access; write abfss://container@account.dfs.core.windows.net/prefix",
}


def access_hint(scheme: str) -> str:
    """Where the access to a store comes from."""
    return _ACCESS["abfs" if scheme == "abfss" else scheme]


class ObjectFiles:
    """The objects of one store; a path is the bucket and the key."""

    def __init__(self, store: Any, scheme: str, cache: Path) -> None:
        """`store` is a PyArrow file system; files that are to be mapped are put below `cache`."""
        self._store = store
        self._scheme = scheme
        self._cache = cache
        self._downloads: Path | None = None
        self._downloading = Lock()
        self._downloaded: dict[Path, Path] = {}
        self._numbers = itertools.count()

    def write(self, path: Path, parts: Parts) -> None:
        with self._translated(path, "written"), self._store.open_output_stream(str(path)) as stream:
            for part in parts:
                stream.write(part)
        self._downloaded.pop(path, None)

    def put(self, path: Path, parts: Parts) -> None:
        # In one piece: a stream that is left by an error would be closed, and so be there with a part of it.
        self.write(path, [b"".join(bytes(part) for part in parts)])

    def read(self, path: Path) -> bytes:
        with self._translated(path, "read"), self._store.open_input_stream(str(path)) as stream:
            content: bytes = stream.read()
            return content

    def local(self, path: Path) -> Path:
        with self._downloading:
            if path not in self._downloaded:
                self._downloaded[path] = self._download(path)
            return self._downloaded[path]

    def _download(self, path: Path) -> Path:
        if self._downloads is None:
            self._downloads = _own_folder(self._cache)
            weakref.finalize(self, shutil.rmtree, self._downloads, ignore_errors=True)
        target = self._downloads / f"{next(self._numbers)}-{path.name}"
        with (
            self._translated(path, "read"),
            self._store.open_input_stream(str(path)) as stream,
            open(target, "wb") as file,
        ):
            while piece := stream.read(_PIECE):
                file.write(piece)
        return target

    def remove(self, path: Path) -> None:
        with self._translated(path, "removed"), contextlib.suppress(FileNotFoundError):
            self._store.delete_file(str(path))

    def make_folder(self, path: Path) -> None:
        """Keys need no folders."""

    def sync_folder(self, path: Path) -> None:
        """What was put is there."""

    def names(self, path: Path) -> list[str]:
        from pyarrow import fs

        with self._translated(path, "listed"):
            selector = fs.FileSelector(str(path), allow_not_found=True)
            return sorted(entry.base_name for entry in self._store.get_file_info(selector))

    def size(self, path: Path) -> int:
        with self._translated(path, "read"):
            return self._store.get_file_info(str(path)).size or 0

    def location(self, path: Path) -> str:
        return f"{self._scheme}://{path}"

    @contextlib.contextmanager
    def _translated(self, path: Path, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if what != "written":
                raise
            raise self._error(path, what, "the bucket is not there") from None
        except (OSError, pa.ArrowException) as error:
            # PyArrow's Azure client raises errors of its own kind when it finds no credentials.
            raise self._error(path, what, _first_part(str(error))) from error

    def _error(self, path: Path, what: str, why: str) -> ConnectorError:
        return ConnectorError(
            f"an object could not be {what}: {why}",
            code="STATE_STORE",
            hint=access_hint(self._scheme),
            where=self.location(path),
        )


def _first_part(text: str) -> str:
    """The message of a client of a store without what it adds for its own developers."""
    for mark in (". Detail:", " error_info=", "\nSee "):
        text = text.partition(mark)[0]
    return text


def _own_folder(cache: Path) -> Path:
    """A new folder of this process; those that dead processes have left are taken away."""
    cache.mkdir(parents=True, exist_ok=True)
    for folder in cache.iterdir():
        if (lock := _locked(folder / _LOCK)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
    own = Path(tempfile.mkdtemp(dir=cache))
    (own / _LOCK).touch()
    _locked(own / _LOCK)  # until the process ends
    return own


def _locked(path: Path) -> int | None:
    """The handle of a lock that nobody else has; None when somebody has it, or when there is none yet."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
