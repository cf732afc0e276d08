"""Changes by key on a source without a primary key: which rows they replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.state.spine import Spine


def replace_by_key(
    change: Delta,
    keys: tuple[int, ...],
    waiting: Sequence[Delta],
    lookup: Callable[[Sequence[pa.Array]], Delta],
) -> Delta:
    """Return the rows to retract and insert for a change by key; the last row of a key wins.

    `lookup` gives the committed rows of some keys, `waiting` are changes that the same tick has before this one.
    """
    columns = [change.columns[key] for key in keys]
    order, starts = group_rows(hash_rows(columns), columns)
    ends = np.append(starts[1:], len(order))
    last = np.sort(
        np.array([order[start:end].max() for start, end in zip(starts, ends, strict=True)], np.int64)
    )
    winners = change.take(last)
    values = [winners.columns[key] for key in keys]
    old = [lookup(values)]
    if waiting:
        pending = Spine([column.type for column in change.columns], keys)
        pending.stage(concat(waiting))
        old.append(pending.after().lookup(values, len(winners))[1])
    inserted = winners.take(np.flatnonzero(winners.weights > 0))
    new = Delta(inserted.columns, np.ones(len(inserted), np.int64))
    return consolidate(concat([*(-rows for rows in old), new]))
