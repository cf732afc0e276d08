"""A value of the state that is replaced as a whole: a number, the time of the last tick, a few rows."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta, empty
from penstock.state.state import Image, Leaf, numpy_array

T = TypeVar("T")


class Cell(Leaf, Generic[T]):
    """A value that JSON can say, before and after the tick."""

    __slots__ = ("_staged", "value")

    def __init__(self, value: T) -> None:
        self.value = value  # before the tick
        self._staged = value

    @property
    def staged(self) -> T:
        """The value after the tick."""
        return self._staged

    def stage(self, value: T) -> None:
        """Let the value be another one after the tick."""
        self._staged = value

    def commit(self) -> None:
        self.value = self._staged

    def rollback(self) -> None:
        self._staged = self.value

    def memory(self) -> int:
        return 0

    def save(self) -> Image:
        return Image(values={"value": self.value})

    def load(self, image: Image) -> None:
        value: Any = image.values["value"]
        self.value = self._staged = value


class RowCell(Cell[Delta]):
    """A few rows."""

    __slots__ = ("_types",)

    def __init__(self, types: tuple[pa.DataType, ...]) -> None:
        super().__init__(empty(types))
        self._types = types

    def memory(self) -> int:
        return int(sum(column.nbytes for column in self.value.columns))

    def save(self) -> Image:
        columns = {f"column {at}": column for at, column in enumerate(self.value.columns)}
        return Image(arrays={**columns, "weights": self.value.weights})

    def load(self, image: Image) -> None:
        columns = []
        for at in range(len(self._types)):
            column = image.arrays[f"column {at}"]
            assert isinstance(column, pa.Array)
            columns.append(column)
        self.value = self._staged = Delta(tuple(columns), np.asarray(numpy_array(image, "weights"), np.int64))
