"""An index of one operator's output by some of its columns, shared by every reader that needs the same one.

A reader that needs only some of the columns reads them from the index of all (`Selected`), so that rows are stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.data.delta import Delta
from penstock.state.key_counts import KeyCounts
from penstock.state.merge import Keep
from penstock.state.run import Run, select_columns
from penstock.state.spine import Spine, SpineVersion
from penstock.state.state import Composite, Image, State

_MOST_SELECTIONS = 16  # runs from which on those are forgotten that were merged


class Arrangement(Composite):
    """The rows of one operator, by key. It is stepped once per tick, before its readers.

    `apply` stages the operator's delta. Readers then ask for the rows `before` or `after` it; an arrangement that is not stepped
    in a tick gives the same rows for both. `keys` None means that the whole row is the key. Readers that ask which keys exist
    (semi, anti and outer joins) call `count_keys` once; from then on the rows per key are counted as well. `keep` and
    `keep_keys` say which rows, and which keys of counts, are still wanted.
    """

    __slots__ = ("_counts", "_keep_keys", "_spine")

    fixed = False  # counts may come later

    def __init__(
        self,
        types: Sequence[pa.DataType],
        keys: Sequence[int] | None,
        keep: Keep | None = None,
        keep_keys: Keep | None = None,
    ) -> None:
        self._spine = Spine(types, keys, keep)
        self._keep_keys = keep_keys
        self._counts: KeyCounts | None = None

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self._spine
        if self._counts is not None:
            yield "counts", self._counts

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the columns."""
        return self._spine.types

    @property
    def keys(self) -> tuple[int, ...] | None:
        """The columns of the key; None for the whole row."""
        return self._spine.keys

    @property
    def key_columns(self) -> tuple[int, ...]:
        """The columns of the key, which may be all."""
        return tuple(range(len(self.types))) if self.keys is None else self.keys

    def key_of(self, delta: Delta) -> tuple[pa.Array, ...]:
        """The key columns of rows of this arrangement."""
        return tuple(delta.columns[column] for column in self.key_columns)

    def count_keys(self) -> KeyCounts:
        """Count the rows of each key from now on. Cost of the first call: data."""
        if self._counts is None:
            counts = KeyCounts([self.types[column] for column in self.key_columns], self._keep_keys)
            rows = self._spine.before().rows()
            if len(rows):
                counts.stage(self.key_of(rows), rows.weights)
                counts.commit()
            self._counts = counts
            self.changed_shape()
        return self._counts

    def load(self, image: Image) -> None:
        """Be what `save` gave; counts that were not saved are counted from the rows."""
        self._spine.load(image.parts["rows"])
        if self._counts is not None and "counts" in image.parts:
            self._counts.load(image.parts["counts"])
        elif self._counts is not None:
            self._counts = None
            self.count_keys()

    def sorted(self, delta: Delta) -> Run:
        """A change as a run of this arrangement."""
        return self._spine.sorted(delta)

    def apply(self, delta: Delta) -> None:
        """Stage a change; called at most once per tick."""
        self._spine.stage(delta)
        if self._counts is not None:
            self._counts.stage(self.key_of(delta), delta.weights)

    def apply_run(self, run: Run) -> None:
        """Stage a change that is a run of this arrangement already."""
        self._spine.stage_run(run)
        if self._counts is not None:
            rows = run.delta()
            self._counts.stage(self.key_of(rows), rows.weights)

    def before(self) -> SpineVersion:
        """The rows without the change of this tick."""
        return self._spine.before()

    def after(self) -> SpineVersion:
        """The rows with the change of this tick."""
        return self._spine.after()

    def changed(self, *, filling: bool) -> tuple[Run, ...]:
        """The change of this tick as runs; for a reader that joins in later (`filling`) that is everything."""
        if filling:
            return self._spine.after().runs
        staged = self._spine.staged()
        return () if staged is None else (staged,)

    @property
    def count(self) -> int:
        """The number of committed rows, counting multiplicity."""
        return self._spine.count


class Selected(Arrangement):
    """Some columns of another arrangement's rows, by the same key: it stores nothing, and nobody steps it.

    `columns` are positions in the other one; the columns of its key must be among them. A row may be there several times.
    """

    __slots__ = ("_base", "_columns", "_selections")

    def __init__(self, base: Arrangement, columns: Sequence[int]) -> None:
        assert base.keys is not None
        super().__init__(
            [base.types[column] for column in columns], [columns.index(key) for key in base.keys]
        )
        self._base = base
        self._columns = tuple(columns)
        self._selections: dict[int, Run] = {}  # by the name of the run

    def states(self) -> Iterator[tuple[str, State]]:
        """Nothing: the rows belong to the other arrangement."""
        return iter(())

    def count_keys(self) -> KeyCounts:
        return self._base.count_keys()

    def before(self) -> SpineVersion:
        return SpineVersion(self.types, self.keys, self._selected(self._base.before().runs))

    def after(self) -> SpineVersion:
        return SpineVersion(self.types, self.keys, self._selected(self._base.after().runs))

    def changed(self, *, filling: bool) -> tuple[Run, ...]:
        return self._selected(self._base.changed(filling=filling))

    @property
    def count(self) -> int:
        return self._base.count

    def _selected(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        return tuple(self._selection(run) for run in runs)

    def _selection(self, run: Run) -> Run:
        # A run is selected from once. The run of a tick that was rolled back leaves its name to another one.
        selection = self._selections.get(run.name)
        if selection is None or selection.weights is not run.weights:
            if len(self._selections) >= _MOST_SELECTIONS:
                # Those of runs that were merged hold memory that nobody needs.
                current = {live.name for live in self._base.after().runs}
                self._selections = {
                    name: selected for name, selected in self._selections.items() if name in current
                }
            selection = self._selections[run.name] = select_columns(run, self._columns)
        return selection
