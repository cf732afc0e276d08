"""The canonical form of a delta: every row once, with the sum of its weights, and no row of weight zero.

Rows are the same when they are equal as rows of a multiset (`penstock.data.equality`): NULL equals NULL, all NaNs are one value,
maps do not depend on the order of their entries, but -0.0 and 0.0 stay two rows, as Spark shows them.
"""

from __future__ import annotations

import numpy as np

from penstock.data.delta import Delta
from penstock.data.equality import group_rows
from penstock.data.hashing import Hashes, hash_rows


def consolidate(delta: Delta, hashes: Hashes | None = None) -> Delta:
    """Return the same change with each row at most once; the first of several equal rows stands for all.

    Rows keep the order in which they first appear. `hashes` are the hashes of the whole rows, when the caller has them.
    A delta that is consolidated already is returned as it is.

    >>> import numpy as np, pyarrow as pa
    >>> delta = Delta((pa.array([1, 2, 1]),), np.array([1, 1, -1]))
    >>> consolidate(delta).columns[0].to_pylist()
    [2]
    """
    if len(delta) == 0:
        return delta
    if hashes is None:
        hashes = hash_rows(delta.columns, len(delta))
    order, starts = group_rows(hashes, delta.columns, as_rows=True)
    if len(starts) == len(order):
        return delta if delta.weights.all() else delta.take(np.flatnonzero(delta.weights))
    sums = np.add.reduceat(delta.weights[order], starts)
    remaining = sums != 0
    positions, weights = order[starts][remaining], sums[remaining]
    by_position = np.argsort(positions)
    positions = positions[by_position]
    return Delta(delta.take(positions).columns, weights[by_position])
