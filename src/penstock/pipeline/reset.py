"""Throwing away what a group of a pipeline keeps outside of its folder: dead letters, and what its sources have made in other systems."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, StateError
from penstock.pipeline.node import SourceNode

if TYPE_CHECKING:
    from penstock.config import Settings


def remove_tree(folder: Path) -> bool:
    """Delete a folder; False when there is none."""
    if not folder.is_dir():
        return False
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StateError(
            f"the folder cannot be deleted: {error.strerror}", code="STATE_CHECKPOINT", where=str(folder)
        ) from error
    return True


def remove_outside(file: Path, outside: Mapping[str, str], settings: Settings) -> Iterator[tuple[str, str]]:
    """Drop what the sources of a pipeline have made in other systems; yields each node, and why something of it stays or an empty text.

    The addresses of those systems are read from the file, because passwords are recorded nowhere.
    """
    from penstock.pipeline.load import check
    from penstock.pipeline.secret import hide

    if not outside:
        return
    try:
        spec = check(file, settings=settings).spec
    except (PenstockError, OSError) as error:
        reason = error.message if isinstance(error, PenstockError) else str(error)
        yield from ((name, reason) for name in outside)
        return
    for name in outside:
        node = spec.nodes.get(name)
        if node is None or not isinstance(node.model, SourceNode):
            yield name, f"the file has no such source any more: {file}"
            continue
        try:
            node.model.source(settings).named(spec.name, name).reset()
        except PenstockError as error:
            yield name, hide(error.message, spec.secrets)
        else:
            yield name, ""
