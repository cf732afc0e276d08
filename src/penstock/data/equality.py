"""When two rows are equal: what decides after two hashes have met, NULL-safe and for every type.

Equality comes in two kinds. As *keys* (GROUP BY, joins) -0.0 and 0.0 are one value. As *rows* of a multiset they are two,
because expressions can tell them apart (`CAST(x AS STRING)`) and a retraction must find exactly what was inserted. NaNs, whose
payload Spark never shows, are one value in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import ColumnView, gather, vectors_at, view, views
from penstock.data.hashing import Hashes, elements, expand, hash_rows, tells_apart
from penstock.data.sorting import order_words


def equal_rows(
    left: Sequence[pa.Array | ColumnView],
    left_positions: Positions,
    right: Sequence[pa.Array | ColumnView],
    right_positions: Positions,
    *,
    as_rows: bool = False,
) -> Bools:
    """Compare rows pairwise, NULL-safe: as keys (-0.0 equals 0.0), or as rows of a multiset (it does not)."""
    equal = np.ones(len(left_positions), np.bool_)
    for a, b in zip(left, right, strict=True):
        equal &= _equal(a, left_positions, b, right_positions, as_rows)
    return equal


def group_rows(
    hashes: Hashes, columns: Sequence[pa.Array], *, as_rows: bool = False
) -> tuple[Positions, Positions]:
    """Group equal rows: (order, starts), where `order[starts[i] : starts[i + 1]]` are the positions of group i, ascending.

    Groups come in the order of their hash; a comparison tells rows apart that share a hash without being equal.
    """
    order, ordered = order_words(hashes)
    return order, np.flatnonzero(group_ordered(order, ordered, columns, as_rows=as_rows))


def group_ordered(
    order: Positions, ordered: Hashes, columns: Sequence[pa.Array], *, as_rows: bool = False
) -> Bools:
    """Which positions begin a group, for rows in the order of their hashes; `ordered` are the hashes.

    Rows that share a hash without being equal change their positions in `order`.
    """
    fresh = np.ones(len(order), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    if fresh.all() or tells_apart(columns):
        return fresh
    rest = np.flatnonzero(~fresh)
    same = _equal_neighbours(order, rest, columns, as_rows)
    if same.all():
        return fresh
    # Some hash has rows that differ: sort its rows by the first row that each equals.
    mixed = np.unique(ordered[rest[~same]])
    begin = np.searchsorted(ordered, mixed)
    lengths = np.searchsorted(ordered, mixed, "right") - begin
    offset, _ = expand(lengths)
    at = np.repeat(begin, lengths) + offset
    block = np.repeat(np.arange(len(mixed)), lengths)
    leader = _leaders(order[at], block, columns, as_rows)
    resort = np.lexsort((order[at], leader, block))
    order[at] = order[at][resort]
    block, leader = block[resort], leader[resort]
    fresh[at[1:]] = (block[1:] != block[:-1]) | (leader[1:] != leader[:-1])
    return fresh


def _equal_neighbours(order: Positions, rest: Positions, columns: Sequence[pa.Array], as_rows: bool) -> Bools:
    """Which rows, at positions of an order, equal the row before them."""
    if 2 * len(rest) < len(order):
        return equal_rows(columns, order[rest], columns, order[rest - 1], as_rows=as_rows)
    # Where most rows have an equal neighbour, each is fetched once.
    ordered = views(gather(columns, order))
    return equal_rows(ordered, rest, ordered, rest - 1, as_rows=as_rows)


def _leaders(rows: Positions, block: Positions, columns: Sequence[pa.Array], as_rows: bool) -> Positions:
    """For rows of ascending blocks, the position of the first row of the block that each equals."""
    leader = np.empty(len(rows), np.int64)
    rest = np.arange(len(rows))
    while len(rest):
        # The first unresolved row of each block leads the next round.
        leads = np.empty(len(rest), np.bool_)
        leads[0] = True
        np.not_equal(block[rest[1:]], block[rest[:-1]], out=leads[1:])
        candidate = rest[np.flatnonzero(leads)[np.cumsum(leads) - 1]]
        same = equal_rows(columns, rows[rest], columns, rows[candidate], as_rows=as_rows)
        leader[rest[same]] = candidate[same]
        rest = rest[~same]
    return leader


def _equal(
    left: pa.Array | ColumnView, at: Positions, right: pa.Array | ColumnView, bt: Positions, as_rows: bool
) -> Bools:
    va = left if isinstance(left, ColumnView) else view(left)
    vb = right if isinstance(right, ColumnView) else view(right)
    a, b = va.array, vb.array
    if va.values is not None and vb.values is not None:
        equal = _equal_values(va.values.take(at), vb.values.take(bt), as_rows)
    elif pa.types.is_nested(a.type):
        vectors = _equal_vectors(a, at, b, bt, as_rows)
        if vectors is not None:
            return vectors
        return _equal_nested(a.take(pa.array(at)), b.take(pa.array(bt)), as_rows)
    elif pa.types.is_null(a.type) or pa.types.is_null(b.type):
        equal = np.ones(len(at), np.bool_)
    else:
        x, y = a.take(pa.array(at)), b.take(pa.array(bt))
        equal = (
            pc.equal(x, y if x.type == y.type else y.cast(x.type))
            .fill_null(True)
            .to_numpy(zero_copy_only=False)
            .astype(np.bool_)
        )
    left_nulls, right_nulls = va.nulls(at), vb.nulls(bt)
    if left_nulls is None and right_nulls is None:
        return equal
    none = np.zeros(len(at), np.bool_)
    return _with_nulls(
        equal, none if left_nulls is None else left_nulls, none if right_nulls is None else right_nulls
    )


def _with_nulls(equal: Bools, left: Bools, right: Bools) -> Bools:
    both: Bools = (equal | left) & (left == right)
    return both


def _equal_values(left: npt.NDArray[Any], right: npt.NDArray[Any], as_rows: bool) -> Bools:
    equal: Bools = left == right
    if left.dtype.kind == "f":
        if as_rows:
            equal &= np.signbit(left) == np.signbit(right)
        equal |= (left != left) & (right != right)
    return equal


def _equal_vectors(
    left: pa.Array, at: Positions, right: pa.Array, bt: Positions, as_rows: bool
) -> Bools | None:
    """Compare lists that are the rows of matrices; None when they are not."""
    if left.type != right.type or (left_vectors := vectors_at(left, at)) is None:
        return None
    right_vectors = vectors_at(right, bt)
    if right_vectors is None:
        return None
    if left_vectors.shape != right_vectors.shape:
        return np.zeros(len(at), np.bool_)
    equal: Bools = np.logical_and.reduce(_equal_values(left_vectors, right_vectors, as_rows), axis=1)
    return equal


def _equal_nested(left: pa.Array, right: pa.Array, as_rows: bool) -> Bools:
    """Compare structs, lists and maps of two arrays of one length, row by row."""
    if pa.types.is_struct(left.type):
        positions = np.arange(len(left))
        equal = equal_rows(left.flatten(), positions, right.flatten(), positions, as_rows=as_rows)
    else:
        if not pa.types.is_map(left.type):
            left, right = (side.cast(pa.large_list(side.type.value_field)) for side in (left, right))
        equal = _equal_lists(left, right, as_rows)
    return _with_nulls(equal, *(side.is_null().to_numpy(zero_copy_only=False) for side in (left, right)))


def _equal_lists(left: pa.Array, right: pa.Array, as_rows: bool) -> Bools:
    (left_bounds, left_items), (right_bounds, right_items) = elements(left), elements(right)
    counts = left_bounds[1:] - left_bounds[:-1]
    equal: Bools = counts == right_bounds[1:] - right_bounds[:-1]
    rows = np.flatnonzero(equal & (counts > 0))
    offset, first = expand(counts[rows])
    if len(offset) == 0:
        return equal
    left_at = np.repeat(left_bounds[rows], counts[rows]) + offset
    right_at = np.repeat(right_bounds[rows], counts[rows]) + offset
    if pa.types.is_map(left.type):
        owner = np.repeat(rows, counts[rows])
        same = _same_entries(owner, left_items, left_at, right_items, right_at, as_rows)
    else:
        same = _equal(left_items, left_at, right_items, right_at, as_rows)
    equal[rows] = np.logical_and.reduceat(same, first)
    return equal


def _same_entries(
    owner: Positions, left: pa.Array, left_at: Positions, right: pa.Array, right_at: Positions, as_rows: bool
) -> Bools:
    """Which entries of the left maps the right map of the same owner has as well, in any order."""
    entries = pa.concat_arrays([left.take(pa.array(left_at)), right.take(pa.array(right_at))])
    columns = [pa.array(np.concatenate([owner, owner])), *entries.flatten()]
    order, starts = group_rows(hash_rows(columns), columns, as_rows=as_rows)
    sides = np.add.reduceat(np.where(order < len(owner), 1, -1), starts)
    same = np.empty(len(order), np.bool_)
    same[order] = np.repeat(sides == 0, np.diff(np.append(starts, len(order))))
    result: Bools = same[: len(owner)]
    return result
