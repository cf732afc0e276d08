"""An index of one operator's output by some of its columns, shared by every reader that needs the same one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.data.delta import Delta
from penstock.state.spine import Reader, Spine


class Arrangement:
    """The rows of one operator, by key. It is stepped once per tick, before its readers.

    `apply` stages the operator's delta. Readers then ask for the rows `before` or `after` it; an
    arrangement that is not stepped in a tick gives the same rows for both. `keys` None means that the whole row is the key.
    """

    __slots__ = ("_spine",)

    def __init__(self, types: Sequence[pa.DataType], keys: Sequence[int] | None) -> None:
        self._spine = Spine(types, keys)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the columns."""
        return self._spine.types

    @property
    def keys(self) -> tuple[int, ...] | None:
        """The columns that rows are found by; None for the whole row."""
        return self._spine.keys

    def apply(self, delta: Delta) -> None:
        """Stage a change; called at most once per tick."""
        self._spine.stage(delta)

    def before(self) -> Reader:
        """The rows without the change of this tick."""
        return self._spine.before()

    def after(self) -> Reader:
        """The rows with the change of this tick."""
        return self._spine.after()

    def commit(self) -> None:
        """Make the change of this tick final."""
        self._spine.commit()

    def rollback(self) -> None:
        """Forget the change of this tick."""
        self._spine.rollback()

    def memory(self) -> int:
        """Bytes held."""
        return self._spine.memory()

    @property
    def count(self) -> int:
        """The number of committed rows, counting multiplicity."""
        return self._spine.count
