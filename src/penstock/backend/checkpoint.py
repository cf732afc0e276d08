"""Removing a checkpoint, and nothing that is not part of one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from penstock.backend.address import hidden
from penstock.errors import ConnectorError, StateError

PARTS = {"metadata", "offsets", "commits", "sources", "state", "rangeMetadata", "__tmp_path_dir"}
"""What Spark keeps in a checkpoint; our own parts begin with `_penstock`, hidden files belong to the others."""


def remove_checkpoint(location: str) -> bool:
    """Delete a checkpoint at a local path or an object store's URI; False when there is none.

    A folder with anything else in it is left alone, with an error that names it.
    """
    path = local_path(location)
    if path is None:
        return _remove_remote(location)
    if not path.exists():
        return False
    _check((entry.name for entry in path.iterdir()) if path.is_dir() else (path.name,), location)
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise StateError(
            f"the checkpoint cannot be deleted: {error.strerror}", code="STATE_CHECKPOINT", where=location
        ) from error
    return True


def local_path(location: str) -> Path | None:
    """The path that a location on this machine's disk means; None when it is elsewhere.

    >>> str(local_path("file:///tmp/a%20b")), local_path("s3://bucket/checkpoint")
    ('/tmp/a b', None)
    """
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return None if "://" in location else Path(location).expanduser().absolute()


def durability_of(checkpoint: str | None) -> Literal["memory", "local", "shared"]:
    """What of a query lasts, by where its checkpoint is: with its process, with the disk of its machine, or longer.

    >>> durability_of(None), durability_of("ckpt/"), durability_of("s3://bucket/ckpt")
    ('memory', 'local', 'shared')
    """
    if checkpoint is None:
        return "memory"
    return "shared" if local_path(checkpoint) is None else "local"


def _remove_remote(location: str) -> bool:
    from pyarrow import ArrowException, fs

    try:
        # Hadoop's names for S3 mean the same store.
        store, path = fs.FileSystem.from_uri(
            location.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
        )
        selector = fs.FileSelector(path, recursive=False, allow_not_found=True)
        entries: list[Any] = store.get_file_info(selector)
        if not entries:
            return False
        _check((entry.base_name for entry in entries), location)
        store.delete_dir(path)
    except (OSError, ArrowException) as error:
        raise ConnectorError(
            f"the checkpoint cannot be deleted: {hidden(str(error).partition('. Detail:')[0])}",
            code="STATE_CHECKPOINT",
            where=location,
            hint="delete it with the store's own tools, then reset again",
        ) from error
    return True


def _check(names: Any, location: str) -> None:
    strange = sorted(name for name in names if name not in PARTS and not name.startswith((".", "_penstock")))
    if strange:
        shown = ", ".join(strange[:5]) + (f" and {len(strange) - 5} more" if len(strange) > 5 else "")
        raise StateError(
            f"the folder of the checkpoint holds other things too: {shown}",
            code="STATE_CHECKPOINT",
            where=location,
            hint="nothing was deleted; move them away, or delete the folder yourself",
        )
