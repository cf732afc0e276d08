"""What has happened to the shards of a kernel: their last saved states, and every change since, as each shard has seen it.

A shard that is some versions behind makes the changes that it lacks; one that is lost, or further behind, begins with the saved states. The history is
needed as long as the driver lives: a flow that is opened again is made of its own log and checkpoints.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.circuit.message import dumps, loads
from penstock.circuit.operation import AddSource, Change, Drop, EndLoad, Register, Resume, Step

# Of each phase what other shards have sent: (sender, rows by exchange), as bytes.
Inboxes = Sequence[Sequence[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A change as one shard makes it: the rows that the driver has sent with it, and those of other shards."""

    change: bytes
    rows: bytes
    inboxes: Inboxes


@dataclass(frozen=True, slots=True)
class Base:
    """Where a shard begins: at a version, with saved states and what was declared then; the first one with nothing."""

    version: int = 0
    folders: Sequence[str] = ()
    changes: Sequence[Change] = ()


@dataclass(slots=True)
class Declared:
    """What was declared, in its order, as a shard is told that has saved states."""

    changes: dict[str, Change] = field(default_factory=dict)

    def note(self, change: Change) -> None:
        """A change that is final."""
        match change:
            case AddSource():
                self.changes[change.source.name] = replace(change, restored=True)
            case Register():
                for source in change.statics:
                    self.changes[source.name] = AddSource(source, restored=True, copied=True)
                view = change.exchanged.view.name
                self.changes[view] = replace(change, statics=(), restored=not change.suspended)
            case Drop():
                self.changes.pop(change.name, None)
            case Step():
                self._suspend(change.failed, suspended=True)
            case Resume():
                self._suspend(change.views, suspended=False)
            case _:
                pass

    def _suspend(self, views: Sequence[str] | frozenset[str], *, suspended: bool) -> None:
        for name in views:
            change = self.changes[name]
            assert isinstance(change, Register)
            self.changes[name] = replace(change, suspended=suspended, restored=not suspended)


class History:
    """The changes of all shards, in a file without a name."""

    def __init__(self, shards: int, folder: Path | None = None) -> None:
        self._shards = shards
        self.base = Base()
        self.version = 0
        self.declared = Declared()
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._places: list[list[tuple[int, int]]] = []  # per version and shard: offset and length
        self._end = 0
        self._lock = threading.Lock()  # a task that runs again reads while a change becomes final

    @property
    def size(self) -> int:
        """Bytes of changes since the saved states."""
        return self._end

    def append(self, change: Change, entries: Sequence[Entry]) -> None:
        """A change has become final."""
        self.declared.note(change)
        with self._lock:
            places = []
            for entry in entries:
                content = dumps(entry)
                places.append((self._end, len(content)))
                self._file.seek(self._end)
                self._file.write(content)
                self._end += len(content)
            self._places.append(places)
            self.version += 1

    def since(self, shard: int, version: int) -> list[Entry]:
        """The changes of a shard behind a version, which is not before the base."""
        with self._lock:
            contents: list[bytes] = []
            for places in self._places[version - self.base.version :]:
                offset, length = places[shard]
                self._file.seek(offset)
                contents.append(self._file.read(length))
        return [loads(content) for content in contents]

    def begin_from(self, folders: Sequence[str], *, declared: bool = True) -> None:
        """Begin with states that were saved at the version of now, or, without what is declared, with those that are yet to be loaded."""
        changes = (*self.declared.changes.values(), EndLoad()) if declared else ()
        with self._lock:
            self.base = Base(self.version, tuple(folders), changes)
            self._places, self._end = [], 0
            self._file.truncate(0)

    def close(self) -> None:
        self._file.close()
