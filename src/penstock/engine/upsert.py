"""Changes by key on a source without a primary key: which rows they replace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.state.arrangement import Arrangement
from penstock.state.spine import Reader, Spine


def replace_by_key(committed: Arrangement, waiting: Sequence[Delta], change: Delta) -> Delta:
    """Return the rows to retract and insert for a change by key; the last row of a key wins.

    `committed` holds the source by these keys, `waiting` are changes of it that the same tick has before this one.
    """
    keys = committed.keys
    assert keys is not None
    columns = [change.columns[key] for key in keys]
    order, starts = group_rows(hash_rows(columns), columns)
    ends = np.append(starts[1:], len(order))
    last = np.sort(
        np.array([order[start:end].max() for start, end in zip(starts, ends, strict=True)], np.int64)
    )
    winners = change.take(last)
    wanted = [winners.columns[key] for key in keys]
    readers: list[Reader] = [committed.before()]
    if waiting:
        pending = Spine(committed.types, keys)
        pending.stage(concat(waiting))
        readers.append(pending.after())
    old = [reader.lookup(wanted, len(winners))[1] for reader in readers]
    inserted = winners.take(np.flatnonzero(winners.weights > 0))
    new = Delta(inserted.columns, np.ones(len(inserted), np.int64))
    return consolidate(concat([*(-rows for rows in old), new]))
