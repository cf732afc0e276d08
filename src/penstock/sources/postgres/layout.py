"""The columns of now in rows of an older shape: PostgreSQL says their names of then, and keeps the order of columns for good.

A column never changes its place, a new one comes behind all others, and a dropped one leaves a gap. So an old shape
is the columns of now from the first up to some place, with some that are gone in between. Where names alone do not
tell which is which, because a column was renamed, the places do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.sources.postgres.pgoutput import RelationMessage
from penstock.sources.postgres.table import Table

_Score = tuple[int, int]
"""How many names are the same, and how many columns would have got another name and another type, as a negative number."""
_Places = tuple[tuple[int, str], ...]
"""Columns of the old shape by their place, and their names of now."""


def with_names_of_now(relation: RelationMessage, table: Table) -> RelationMessage | None:
    """Return an older shape of a table with the names that its columns have now; None when nobody can tell which they are."""
    names = [column.name for column in relation.columns]
    if _is_clear(names, table):
        return relation
    places = _aligned(relation, table)
    if places is None:
        return None
    now = dict(places)
    columns = tuple(
        # A column that is gone, or is not read, must not be taken for one that has its old name now.
        replace(column, name=now.get(place, f"{column.name}, which is not read"))
        for place, column in enumerate(relation.columns)
    )
    return replace(relation, columns=columns)


def _is_clear(names: Sequence[str], table: Table) -> bool:
    """Whether the names of then are those of now, but for columns that are gone, or are new behind all others."""
    if not table.layout:
        return True
    order = {name: place for place, name in enumerate(table.layout) if name is not None}
    read = {column.name for column in table.columns}
    same = [order[name] for name in names if name in order]
    gone = [name for name in names if name not in order]
    new = [order[name] for name in read if name not in names]
    in_order = same == sorted(same)
    return in_order and (not new or (not gone and min(new) > max(same, default=-1)))


def _aligned(relation: RelationMessage, table: Table) -> _Places | None:
    """Find the one way in which the columns of then are among those of now and those that are gone, with as many
    equal names as can be."""
    kinds = {column.name: column.oid for column in table.columns}
    then, now = relation.columns, table.layout
    # From the last place of now back to the first: the best ways to place the last columns of then, by the first of them.
    behind: dict[int, tuple[_Score, frozenset[_Places]]] = {len(then): ((0, 0), frozenset([()]))}
    for name in reversed(now):
        here = {}
        for first in range(len(then) + 1):
            ways = []
            if first < len(then) and first + 1 in behind:
                column = then[first]
                score, places = behind[first + 1]
                same = int(name == column.name)
                if name in kinds:
                    other = int(not same and kinds[name] != column.oid)
                    places = frozenset([((first, name), *rest) for rest in places])
                    ways.append(((score[0] + same, score[1] - other), places))
                else:
                    ways.append(((score[0] + same, score[1]), places))
            # A column that is read and was there cannot be passed over, unless it came behind all columns of then.
            if first in behind and (name not in kinds or first == len(then)):
                ways.append(behind[first])
            if ways:
                best = max(score for score, _ in ways)
                candidates = frozenset[_Places]().union(*(places for score, places in ways if score == best))
                here[first] = (best, frozenset(sorted(candidates)[:2]))
        behind = here
    _, places = behind.get(0, ((0, 0), frozenset[_Places]()))
    return next(iter(places)) if len(places) == 1 else None
