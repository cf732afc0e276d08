"""What an aggregate gives for some groups, and which of it changes in a tick.

Most results have a fixed width. They stay in NumPy until the operator knows which of them it shows, because making
Arrow arrays that are compared and thrown away costs more than the rest of a small tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import PAIR, gather
from penstock.data.equality import equal_rows


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of a fixed width; NULL where `valid` is false, nowhere when it is None. Equal values have equal bits."""

    values: npt.NDArray[Any]
    valid: Bools | None
    type: pa.DataType

    def array(self) -> pa.Array:
        """The same as an Arrow array."""
        valid = self.valid
        mask = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        data = pa.py_buffer(np.ascontiguousarray(self.values))
        return pa.Array.from_buffers(self.type, len(self.values), [mask, data])


Result: TypeAlias = Numbers | pa.Array


def decimals(words: npt.NDArray[np.int64], valid: Bools, kind: pa.DataType) -> Numbers:
    """Decimals as rows of two 64-bit words, low and high."""
    return Numbers(np.ascontiguousarray(words).view(PAIR).reshape(-1), valid, kind)


def shown(result: Result) -> pa.Array:
    """A result as an Arrow array."""
    return result.array() if isinstance(result, Numbers) else result


def equal(before: Result, after: Result) -> Bools:
    """Where two results for the same groups are the same."""
    if not (isinstance(before, Numbers) and isinstance(after, Numbers)):
        old_values, new_values = shown(before), shown(after)
        positions = np.arange(len(old_values))
        return equal_rows([old_values], positions, [new_values], positions, as_rows=True)
    old, new = before.values, after.values
    if old.dtype.kind == "f":
        old, new = old.view(f"u{old.itemsize}"), new.view(f"u{old.itemsize}")
    same: Bools = old == new
    if before.valid is not None and after.valid is not None:
        same &= before.valid
        same |= ~before.valid
        same &= before.valid == after.valid
    return same


def picked(before: Result, gone: Positions, after: Result, come: Positions) -> pa.Array:
    """The results of before for some groups, then those of after for some groups."""
    if not (isinstance(before, Numbers) and isinstance(after, Numbers)):
        return pa.concat_arrays([*gather([shown(before)], gone), *gather([shown(after)], come)])
    values = np.concatenate((before.values[gone], after.values[come]))
    valid = None
    if before.valid is not None and after.valid is not None:
        valid = np.concatenate((before.valid[gone], after.valid[come]))
    return Numbers(values, valid, before.type).array()
