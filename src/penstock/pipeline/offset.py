"""How far the sources of a group have been read, from the checkpoint of its query and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_YET = "-"
"""How Spark writes that a source has not been read yet."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """How far one source has been read for good."""

    node: str
    read: str
    """In words."""
    offset: Any
    """As Spark keeps it; None when it has not been read yet."""


def offsets(checkpoint: Path, nodes: Sequence[str]) -> list[SourceOffset]:
    """Return how far each source has been read by the last committed epoch; `nodes` are those of the sources, in their order."""
    last = max((int(path.name) for path in _files(checkpoint / "commits")), default=None)
    if last is None:
        return [SourceOffset(node, "not read yet", None) for node in nodes]
    _, _, *lines = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").split("\n")
    return [
        _source(checkpoint, index, node, text.strip())
        for index, (node, text) in enumerate(zip(nodes, lines, strict=False))
    ]


def described(offset: Any) -> str:
    """An offset in words, for every kind of source whose offsets people can read.

    >>> described({"clicks": {"1": 40, "0": 12}})
    'clicks-0 up to 12, clicks-1 up to 40'
    """
    if isinstance(offset, Mapping):
        if "phase" in offset:
            from penstock.sources.postgres import follow

            return follow.described(offset)
        if offset and all(isinstance(partitions, Mapping) for partitions in offset.values()):
            positions = (
                f"{topic}-{partition} up to {end}"
                for topic, partitions in sorted(offset.items())
                for partition, end in sorted(partitions.items(), key=lambda item: int(item[0]))
            )
            return ", ".join(positions)
        if "snapshot_id" in offset:
            return f"snapshot {offset['snapshot_id']}, {offset.get('position', 0)} files of it"
    return json.dumps(offset)


def _source(checkpoint: Path, index: int, node: str, text: str) -> SourceOffset:
    if text in ("", NOT_YET):
        return SourceOffset(node, "not read yet", None)
    offset = json.loads(text)
    if isinstance(offset, dict) and offset.keys() == {"logOffset"}:
        names = _files_read(checkpoint / "sources" / str(index), offset["logOffset"])
        return SourceOffset(node, f"{len(names)} file{'' if len(names) == 1 else 's'}", offset)
    return SourceOffset(node, described(offset), offset)


def _files_read(log: Path, last: int) -> set[str]:
    """The files in the log of a file source, which has a list per batch, and now and then one of all before it."""
    names: set[str] = set()
    for path in log.iterdir() if log.is_dir() else ():
        number = path.name.removesuffix(".compact")
        if number.isdigit() and int(number) <= last:
            lines = path.read_text(encoding="utf-8").splitlines()[1:]
            names |= {json.loads(line)["path"] for line in lines if line}
    return names


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
