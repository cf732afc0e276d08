"""What has happened to the shards of a kernel: their last saved states, and every change since, as each shard has seen it.

A shard that is some versions behind makes the changes that it lacks; one that is lost, or further behind, begins with
the saved states. The history is needed as long as the driver lives: a flow that is opened again is made of its own
log and checkpoints.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import PickleBuffer

from penstock.circuit.message import dumps, loads
from penstock.circuit.operation import AddSource, Change, DropRelation, EndLoad, Register, Resume, StepCircuit
from penstock.circuit.retention import retained_with
from penstock.plan import node as plan

# Of each phase what other shards have sent: (sender, rows by exchange), as bytes.
Inboxes = Sequence[Sequence[tuple[int, PickleBuffer]]]
_IN_MEMORY = 512 * 2**20  # bytes of changes that are not written to the file


@dataclass(frozen=True, slots=True)
class Entry:
    """A change as one shard makes it: the rows that the driver has sent with it, and those of other shards."""

    change: bytes
    rows: PickleBuffer
    inboxes: Inboxes

    @property
    def size(self) -> int:
        """Bytes."""
        pieces = [self.rows, *(content for inbox in self.inboxes for _, content in inbox)]
        return len(self.change) + sum(piece.raw().nbytes for piece in pieces)


@dataclass(frozen=True, slots=True)
class Base:
    """Where a shard begins: at a version, with saved states and what was declared then; the first one with nothing."""

    version: int = 0
    folders: Sequence[str] = ()
    changes: Sequence[Change] = ()


@dataclass(slots=True)
class Declared:
    """What was declared, in its order, as it is sent to a shard that has saved states."""

    changes: dict[str, Change] = field(default_factory=dict)

    def note(self, change: Change) -> None:
        """A change that is final."""
        match change:
            case AddSource():
                self.changes[change.source.name] = replace(change, restored=True)
            case Register():
                for source in change.statics:
                    self.changes[source.name] = AddSource(source, restored=True, copied=True)
                view = change.exchanged.view
                for name in plan.scanned(view.root):
                    source_added = self.changes.get(name)
                    if isinstance(source_added, AddSource):
                        # Its states have the columns that it keeps since then.
                        source = retained_with(source_added.source, view)
                        self.changes[name] = replace(source_added, source=source)
                self.changes[view.name] = replace(change, statics=(), restored=not change.suspended)
            case DropRelation():
                self.changes.pop(change.name, None)
            case StepCircuit():
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


class ShardHistory:
    """The changes of all shards: the first ones as they came, the others in a file without a name."""

    def __init__(self, shards: int, folder: Path | None = None) -> None:
        self._shards = shards
        self.base = Base()
        self.version = 0
        self.declared = Declared()
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        # Per version and shard the change, or where it is in the file.
        self._places: list[list[Entry | tuple[int, int]]] = []
        self._end = 0
        self._in_memory = 0
        self._lock = threading.Lock()  # a task that runs again reads while a change becomes final

    @property
    def size(self) -> int:
        """Bytes of changes since the saved states."""
        return self._end + self._in_memory

    def append(self, change: Change, entries: Sequence[Entry]) -> None:
        """A change has become final."""
        self.declared.note(change)
        with self._lock:
            places: list[Entry | tuple[int, int]] = []
            for entry in entries:
                if self._in_memory + entry.size <= _IN_MEMORY:
                    self._in_memory += entry.size
                    places.append(entry)
                    continue
                places.append(self._written(entry))
            self._places.append(places)
            self.version += 1

    def _written(self, entry: Entry) -> Entry | tuple[int, int]:
        """Where a change is in the file; the change itself when the disk has no room for it."""
        content = dumps(entry)
        try:
            self._file.seek(self._end)
            self._file.write(content)
            self._file.flush()
        except OSError:
            self._in_memory += entry.size
            return entry
        place = (self._end, len(content))
        self._end += len(content)
        return place

    def since(self, shard: int, version: int) -> list[Entry]:
        """The changes of a shard behind a version, which is not before the base."""
        with self._lock:
            entries: list[Entry | bytes] = []
            for places in self._places[version - self.base.version :]:
                place = places[shard]
                if isinstance(place, Entry):
                    entries.append(place)
                else:
                    self._file.seek(place[0])
                    entries.append(self._file.read(place[1]))
        return [entry if isinstance(entry, Entry) else loads(entry) for entry in entries]

    def begin_from(self, folders: Sequence[str], *, declared: bool = True) -> None:
        """Begin with states that were saved at the version of now, or, without what is declared, with those that are
        yet to be loaded."""
        changes = (*self.declared.changes.values(), EndLoad()) if declared else ()
        with self._lock:
            self.base = Base(self.version, tuple(folders), changes)
            self._places, self._end, self._in_memory = [], 0, 0
            self._file.truncate(0)

    def close(self) -> None:
        self._file.close()
