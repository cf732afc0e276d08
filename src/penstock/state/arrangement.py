"""An index of one operator's output by some of its columns, shared by every reader that needs the same one.

A reader that needs only some of the columns reads them from the index of all (`Selected`), so that rows are kept once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.data.delta import Delta
from penstock.state.key_counts import KeyCounts
from penstock.state.run import Run, row_words, select_columns, sort_run
from penstock.state.spine import Reader, Spine


class Arrangement:
    """The rows of one operator, by key. It is stepped once per tick, before its readers.

    `apply` stages the operator's delta. Readers then ask for the rows `before` or `after` it; an arrangement that is not stepped
    in a tick gives the same rows for both. `keys` None means that the whole row is the key. Readers that ask which keys exist
    (semi, anti and outer joins) call `count_keys` once; from then on the rows per key are counted as well.
    """

    __slots__ = ("_counts", "_spine")

    def __init__(self, types: Sequence[pa.DataType], keys: Sequence[int] | None) -> None:
        self._spine = Spine(types, keys)
        self._counts: KeyCounts | None = None

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the columns."""
        return self._spine.types

    @property
    def keys(self) -> tuple[int, ...] | None:
        """The columns that rows are found by; None for the whole row."""
        return self._spine.keys

    @property
    def key_columns(self) -> tuple[int, ...]:
        """The columns that rows are found by."""
        return tuple(range(len(self.types))) if self.keys is None else self.keys

    def key_of(self, delta: Delta) -> tuple[pa.Array, ...]:
        """The key columns of rows of this arrangement."""
        return tuple(delta.columns[column] for column in self.key_columns)

    def count_keys(self) -> KeyCounts:
        """Count the rows of each key from now on. Cost of the first call: data."""
        if self._counts is None:
            self._counts = KeyCounts([self.types[column] for column in self.key_columns])
            rows = self._spine.before().rows()
            if len(rows):
                self._counts.stage(self.key_of(rows), rows.weights)
                self._counts.commit()
        return self._counts

    def sorted(self, delta: Delta) -> Run:
        """A change as a run of this arrangement."""
        return sort_run(row_words(delta.columns, self.keys, len(delta)), delta)

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

    def before(self) -> Reader:
        """The rows without the change of this tick."""
        return self._spine.before()

    def after(self) -> Reader:
        """The rows with the change of this tick."""
        return self._spine.after()

    def changed(self, *, filling: bool) -> tuple[Run, ...]:
        """The change of this tick as runs; for a reader that joins in later (`filling`) that is everything."""
        if filling:
            return self._spine.after().runs
        staged = self._spine.staged()
        return () if staged is None or len(staged) == 0 else (staged,)

    def commit(self) -> None:
        """Make the change of this tick final."""
        self._spine.commit()
        if self._counts is not None:
            self._counts.commit()

    def rollback(self) -> None:
        """Forget the change of this tick."""
        self._spine.rollback()
        if self._counts is not None:
            self._counts.rollback()

    def memory(self) -> int:
        """Bytes held."""
        return self._spine.memory() + (self._counts.memory() if self._counts else 0)

    @property
    def count(self) -> int:
        """The number of committed rows, counting multiplicity."""
        return self._spine.count


class Selected(Arrangement):
    """Some columns of another arrangement's rows, by the same key: nothing is kept, and nobody steps it.

    `columns` are positions in the other one; the columns of its key must be among them. A row may be there several times.
    """

    __slots__ = ("_base", "_columns", "_known")

    def __init__(self, base: Arrangement, columns: Sequence[int]) -> None:
        assert base.keys is not None
        super().__init__(
            [base.types[column] for column in columns], [columns.index(key) for key in base.keys]
        )
        self._base = base
        self._columns = tuple(columns)
        self._known: dict[int, tuple[Run, Run]] = {}

    def count_keys(self) -> KeyCounts:
        return self._base.count_keys()

    def before(self) -> Reader:
        return Reader(self.types, self.keys, self._selected(self._base.before().runs))

    def after(self) -> Reader:
        return Reader(self.types, self.keys, self._selected(self._base.after().runs))

    def changed(self, *, filling: bool) -> tuple[Run, ...]:
        return self._selected(self._base.changed(filling=filling))

    def memory(self) -> int:
        """Nothing: the rows belong to the other arrangement."""
        return 0

    @property
    def count(self) -> int:
        return self._base.count

    def _selected(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        # A run is selected from once, and forgotten with the run.
        if any(id(run) not in self._known for run in runs):
            known = [self._known.get(id(run)) or (run, select_columns(run, self._columns)) for run in runs]
            self._known = {id(run): (run, selected) for run, selected in known}
        return tuple(self._known[id(run)][1] for run in runs)
