"""Large values that an update did not touch, which its message does not have: they are read from the table.

They are those of this moment. When a later change has set another value, its own message has that one and comes
after; and an update of a row that is gone by now is left out, because its delete follows. So the last row of each key
is right, and no value becomes NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sources.postgres.client import column_list
from penstock.sources.postgres.copy import read_texts
from penstock.sources.postgres.pgoutput import Changes
from penstock.sources.postgres.table import Table

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_MOST_KEYS = 5_000


def filled(connection: psycopg.Connection, table: Table, changes: Changes) -> Changes:
    """Return the changes with all their values."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = list(changes.unchanged)
    lacking = np.flatnonzero(np.logical_or.reduce([changes.unchanged[name] for name in names]))
    keys = list(
        zip(*(changes.texts[name].take(pa.array(lacking)).to_pylist() for name in table.key), strict=True)
    )
    values: dict[tuple[str, ...], tuple[str | None, ...]] = {}
    distinct = list(dict.fromkeys(keys))
    for begin in range(0, len(distinct), _MOST_KEYS):
        condition = _condition(table, distinct[begin : begin + _MOST_KEYS])
        for rows in read_texts(connection, table, [condition]):
            row_keys = zip(*(rows.column(name).to_pylist() for name in table.key), strict=True)
            row_values = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
            values.update(zip(row_keys, row_values, strict=True))
    texts = dict(changes.texts)
    for place, name in enumerate(names):
        flags = np.zeros(len(changes.operations), bool)
        wanted: list[str | None] = []
        for row, key in zip(lacking, keys, strict=True):
            if changes.unchanged[name][row]:
                flags[row] = True
                wanted.append(values[key][place] if key in values else None)
        texts[name] = pc.replace_with_mask(texts[name], pa.array(flags), pa.array(wanted, pa.large_string()))
    stay = np.ones(len(changes.operations), bool)
    stay[[row for row, key in zip(lacking, keys, strict=True) if key not in values]] = False
    positions = pa.array(np.flatnonzero(stay))
    assert changes.places is not None
    return replace(
        changes,
        operations=changes.operations.take(positions),
        texts={name: column.take(positions) for name, column in texts.items()},
        unchanged={},
        places=changes.places[stay],
    )


def _condition(table: Table, keys: Sequence[tuple[str, ...]]) -> sql.Composable:
    from psycopg import sql

    kinds = {column.name: column.kind for column in table.columns}
    rows = sql.SQL(", ").join(
        sql.SQL("({})").format(
            sql.SQL(", ").join(
                sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kinds[name]))
                for name, text in zip(table.key, key, strict=True)
            )
        )
        for key in keys
    )
    return sql.SQL("({}) IN ({})").format(column_list(table.key), rows)
