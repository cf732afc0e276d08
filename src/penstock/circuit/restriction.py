"""Rows that are wanted of a plan, by the values of some columns, and which of them an input must give for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools
from penstock.data.delta import Delta
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.plan import node as plan
from penstock.plan.expression import Column, Expression
from penstock.state.spine import Spine


@dataclass(frozen=True, slots=True)
class Restriction:
    """The rows whose columns equal, as keys, those of one of the rows `values`."""

    columns: tuple[int, ...]
    values: Delta

    def over(self, mapping: Mapping[int, int]) -> Restriction | None:
        """The same for other positions of the columns; columns without one are left out. None when there is none left."""
        positions = [at for at, column in enumerate(self.columns) if column in mapping]
        if not positions:
            return None
        return restriction([mapping[self.columns[at]] for at in positions], self.values.select(positions))

    def of(self, rows: Delta) -> Delta:
        """Those of some rows that are wanted."""
        return rows.take(np.flatnonzero(members(rows.select(self.columns), self.values)))


def restriction(columns: Sequence[int], rows: Delta) -> Restriction:
    """The rows whose columns equal those of one of these rows."""
    return Restriction(tuple(columns), distinct(rows))


def members(rows: Delta, wanted: Delta, *, as_rows: bool = False) -> Bools:
    """Which rows are among others, compared as keys or as rows. Cost: the rows are hashed once."""
    is_member = np.zeros(len(rows), np.bool_)
    if not len(rows) or not len(wanted):
        return is_member
    if not rows.columns:
        return ~is_member
    hashes = hash_rows(rows.columns, len(rows))
    likely = np.flatnonzero(np.isin(hashes, hash_rows(wanted.columns, len(wanted))))
    spine = Spine([column.type for column in rows.columns])
    spine.stage(Delta(wanted.columns, np.ones(len(wanted), np.int64)))
    is_member[likely] = spine.after().multiplicity(rows.take(likely), as_rows=as_rows) > 0
    return is_member


def distinct(rows: Delta) -> Delta:
    """Each row once, with the weight of its first occurrence."""
    if not len(rows) or not rows.columns:
        return rows.take(np.arange(min(len(rows), 1)))
    order, starts = group_rows(hash_rows(rows.columns, len(rows)), rows.columns, as_rows=True)
    return rows if len(starts) == len(rows) else rows.take(np.sort(order[starts]))


def is_null_row(columns: Sequence[pa.Array], rows: int) -> Bools:
    """Which rows have nothing but NULL in some columns."""
    is_null = np.ones(rows, np.bool_)
    for column in columns:
        is_null &= column.is_null().to_numpy(zero_copy_only=False)
    return is_null


def pushed(node: plan.Node, wanted: Restriction) -> list[Restriction | None]:
    """What each input must give so that a node, over nothing else of it, gives all wanted rows; None is everything.

    Joins are not here: what one input must give depends on the rows of the other.
    """
    match node:
        case plan.Filter():
            return [wanted]
        case plan.Union():
            return [wanted for _ in node.inputs]
        case plan.Project():
            return [wanted.over(_plain_columns(node.expressions))]
        case plan.Expand():
            shared = set.intersection(
                *(set(_plain_columns(projection).items()) for projection in node.projections)
            )
            return [wanted.over(dict(shared))]
        case plan.Generate():
            return [wanted.over(dict(enumerate(node.required)))]
        case plan.Aggregate():
            return [wanted.over(dict(enumerate(node.keys)))]
        case plan.TopK() | plan.Window():
            return [wanted.over({column: column for column in node.partition})]
        case plan.SessionWindow():
            return [wanted.over({column: column for column in node.keys})]
        case plan.Spark() if node.stateless and node.bindings:
            width = len(node.inputs[0].fields)
            return [wanted.over({column: column for column in range(width)})]
        case _:
            return [None for _ in plan.children(node)]


def _plain_columns(expressions: Sequence[Expression]) -> dict[int, int]:
    """Output columns that are input columns, and which."""
    return {
        at: expression.index for at, expression in enumerate(expressions) if isinstance(expression, Column)
    }
