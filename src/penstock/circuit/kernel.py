"""The kernel as the engine sees it: relations by name, plans and deltas in, deltas out.

One implementation runs in this process (`penstock.circuit.local`). Operators and the vertices of a circuit never
leave it, so that another one may run inside the tasks of Spark.

A tick is `step`, then `commit` or `rollback`, then `maintain`. Everything that may fail happens before `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from penstock.circuit.compile import Fragment
from penstock.circuit.state_key import StateKey
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.plan import node as plan
from penstock.state.part import CheckpointOrder, CheckpointPart, RestoredPart
from penstock.state.scratch import Piece
from penstock.state.state import Image


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A source or a static table: its columns, and how retractions find their rows.

    With `retain="used"` it keeps its primary key, the columns `retained`, and those that views use.
    """

    name: str
    fields: plan.Fields
    primary_key: tuple[int, ...] = ()
    on_missing: Literal["reject", "quarantine", "ignore"] = "reject"
    retain: Literal["all", "used"] = "all"
    retained: tuple[int, ...] = ()
    event_time: int | None = None  # the column of a source that accepts no change behind its watermark
    frees: bool = False  # whether rows behind the watermark leave


@dataclass(frozen=True, slots=True)
class StaticRows:
    """A table that a view reads and nobody feeds, with its rows."""

    source: KernelSource
    rows: Delta


@dataclass(frozen=True, slots=True)
class ViewFailure:
    """Why a step goes on without a view: its error, or that of the view `because`, whose rows it reads."""

    error: Exception
    because: str | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """The rows of sources and static tables behind rows of a view, and how many rows of which relations were read to
    find them."""

    rows: Mapping[str, Delta]
    scanned: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step did: the change of every source and view that changed, and the time spent for each of them.

    `missing` are the retractions that a source left out, because it has no such rows. An operator that several views
    need is charged to all of them. `failures` are the views that the step went on without.
    """

    outputs: Mapping[str, Delta]
    missing: Mapping[str, Delta]
    seconds: Mapping[str, float]
    failures: Mapping[str, ViewFailure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Staging:
    """What a checkpoint gets of a kernel: states of this process, and parts with those of shards."""

    images: Mapping[StateKey, Image]
    parts: Sequence[CheckpointPart] = ()


class Kernel(Protocol):
    """Sources, views over them, and their state."""

    def add_source(self, source: KernelSource) -> None:
        """Take in a source without rows."""

    def register(
        self,
        view: plan.View,
        fragment: Fragment,
        tick: Tick,
        *,
        statics: Sequence[StaticRows] = (),
        suspended: bool = False,
    ) -> None:
        """Compile a view and fill it from the rows that are there; on an error nothing has changed.

        Static tables that the kernel has already keep their rows. A view that was suspended when the kernel was saved has the
        rows of then, and waits for `resume`.
        """

    def drop(self, name: str) -> None:
        """Take out a source, a static table or a view that no view reads, and all state that nobody else needs."""

    def together(self) -> AbstractContextManager[None]:
        """Let the ticks of the body follow each other without what only the first one needs; nobody else uses Spark in it."""
        return nullcontext()

    def recompute_always(self) -> None:
        """From now on compute every dirty view from all rows and take the difference."""

    def step(
        self, changes: Mapping[str, Delta], tick: Tick, *, optional: frozenset[str] = frozenset()
    ) -> Stepped:
        """Bring every view up to date with these changes of sources; when it raises, nothing has changed.

        The step goes on without a view whose operators fail, if all views that need the failed operator are `optional`, and
        without all views that read it. They are suspended by `commit`: they keep their rows, and have no other state.
        """

    def resume(self, views: Sequence[str], tick: Tick) -> Stepped:
        """Compute suspended views again from the rows of what they read; call `commit` or `rollback` afterwards.

        A view comes behind those that it reads. Its change is the difference to its last rows. A view that fails, and those
        that read it, stay suspended.
        """

    def commit(self) -> None:
        """Make the last step final.

        It has nothing to do that may fail. When an interrupt from outside comes in between, the rest is done before it is
        raised again; StateError says that this was not possible. Called again, it does what is left, or nothing.
        """

    def rollback(self) -> None:
        """Forget the last step."""

    def maintain(self, fuel: int) -> None:
        """Merge and compact the state that the last tick has changed, `fuel` rows for each changed row."""

    def columns(self, name: str) -> tuple[int, ...]:
        """The columns that a source keeps, in the order in which `rows` gives them."""

    def rows(self, name: str, *, hidden: bool = False) -> Delta:
        """All committed rows of a relation; `hidden` adds the columns of a view that are there for its order only."""

    def version(self, name: str) -> Callable[[], Delta]:
        """A function that gives what `rows` gives now, with hidden columns, whenever it is called: ticks may go on meanwhile."""

    def stored(self, name: str) -> Callable[[], Delta]:
        """A function that gives what `put` needs of a relation, as it is now: the columns that a source keeps, and
        with `retain="used"` the two halves of the hash that tells its rows apart; all columns of a view. Ticks may go
        on meanwhile.
        """

    def put(self, name: str, rows: Delta) -> None:
        """Let a source without rows, or a suspended view, have these rows, as `stored` gave them. Views that are
        registered later are filled from them."""

    def lookup(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> Delta:
        """The committed rows of a relation whose columns equal any of these rows of values, through an index.

        A relation has the indexes of the column sets that were used last; others are forgotten, and those that were
        not used for many ticks.
        """

    def matching(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> tuple[Delta, int]:
        """The same, with the hidden columns of a view, and how many rows were read for it without an index. None is made."""

    def trace(self, view: str, rows: Delta, tick: Tick) -> Traced:
        """The rows of sources and static tables behind rows of a view, hidden columns included; `tick` is the last one.

        Each has its weight in the source. StateError when nobody knows them, because of an operator of the view.
        """

    def memory(self) -> int:
        """Bytes of state, with those that lie in files."""

    def mapped(self) -> int:
        """Bytes of state that lie in files."""

    def pieces(self) -> Iterable[Piece]:
        """The state that lies in memory and may move to scratch files. Called between ticks."""

    def save(self) -> Mapping[StateKey, Image]:
        """All committed states by their names. They stay what they are while ticks go on, and can be read in another thread."""

    def stage(self, order: CheckpointOrder) -> Staging:
        """All committed states for a checkpoint; those of shards without what the one before it has. Called between
        ticks; they are written while ticks go on."""
        return Staging(self.save())

    def continue_from(self, part: Callable[[Collection[StateKey]], RestoredPart]) -> None:
        """Let shards write into the next checkpoint what changes from now on; `part` tells what the one that was
        loaded has of some states."""

    def load(self, images: Mapping[StateKey, Image]) -> None:
        """Let sources and views that are added from now on take their states from here, by name.

        A view whose states are not all there is filled from the rows of what it reads, as a new one.
        """

    @property
    def loaded(self) -> Collection[StateKey]:
        """The states that were taken from what `load` was given."""

    def close(self) -> None:
        """Give back what it has outside of this process; it is not used any more."""
