"""The decoder against messages that a server has sent."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import DataError
from penstock.sources.postgres import pgoutput
from penstock.sources.postgres.change import ChangedRows, Shape, Span, rows_of
from penstock.sources.postgres.column import TableColumn
from penstock.sources.postgres.pgoutput import Changes
from penstock.sources.postgres.table import Table
from penstock.sources.postgres.visibility import Visibility

_spec = importlib.util.spec_from_file_location("recorded", Path(__file__).with_name("recorded_messages.py"))
assert _spec is not None
assert _spec.loader is not None
recorded = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recorded)
BIG = recorded.BIG.decode()

TABLE = Table(
    oid=recorded.OID,
    schema="public",
    name="t",
    columns=(
        TableColumn("id", "integer", 23, -1, "int"),
        TableColumn("a", "text", 25, -1, "string"),
        TableColumn("n", "numeric(10,2)", 1700, 655366, "decimal(10,2)"),
        TableColumn("big", "text", 25, -1, "string", is_large=True),
    ),
    others=(),
    key=("id",),
    identity="default",
    identity_columns=("id",),
    is_partitioned=False,
    is_table=True,
)
ENDS = pgoutput.parse(recorded.MESSAGES).transactions.end_lsns
WIDER = replace(TABLE, columns=(*TABLE.columns, TableColumn("extra", "integer", 23, -1, "int", missing="7")))


def _fill(changes: Changes) -> Changes:
    """In place of the table: the value says that it was looked up."""
    texts = {
        name: pa.array(
            [
                "looked up" if flag else text
                for flag, text in zip(changes.unchanged[name], values.to_pylist(), strict=True)
            ],
            pa.large_string(),
        )
        if name in changes.unchanged
        else values
        for name, values in changes.texts.items()
    }
    return replace(changes, texts=texts, unchanged={})


def _rows(table: Table, span: Span, **shape: Any) -> ChangedRows:
    settings: dict[str, Any] = {"specials": "null", "on_truncate": "fail", "where": "here", **shape}
    return rows_of(recorded.MESSAGES, Shape(table, **settings), span, fill=_fill)


def _listed(rows: ChangedRows) -> list[tuple[Any, ...]]:
    return [
        (row["_op"], row["id"], row["a"], row["big"]) for batch in rows.batches for row in batch.to_pylist()
    ]


def test_every_kind_of_change_is_decoded() -> None:
    rows = _rows(TABLE, Span(0, int(ENDS[6])))
    assert rows.end == ENDS[6]
    assert _listed(rows) == [
        ("i", 1, "x", BIG),
        ("i", 2, None, None),
        ("i", 5, "", "é"),
        ("u", 1, "b", "looked up"),
        ("d", 1, None, None),
        ("i", 3, "b", "looked up"),
        ("d", 2, None, None),
        # From here on the old rows are told as a whole.
        ("u", 3, "f", BIG),
        ("d", 3, "f", BIG),
        ("i", 4, "f", BIG),
        ("d", 4, "f", BIG),
    ]
    numbers = [value for batch in rows.batches for value in batch.column("n").to_pylist()]
    assert [None if value is None else str(value) for value in numbers[:4]] == ["1.50", None, None, "1.50"]


def test_transactions_are_taken_whole_and_only_those_of_the_span() -> None:
    assert [row[:2] for row in _listed(_rows(TABLE, Span(int(ENDS[1]), int(ENDS[3]))))] == [
        ("d", 1),
        ("i", 3),
        ("d", 2),
    ]
    assert _rows(TABLE, Span(int(ENDS[-1]))) == ChangedRows(None, [])
    assert rows_of([], Shape(TABLE, "fail", "fail", ""), Span(0), fill=_fill) == ChangedRows(None, [])
    # Those that a snapshot has seen are left out, and passed.
    first = int(pgoutput.parse(recorded.MESSAGES).transactions.xids[0])
    seen = Visibility(low=first + 1, high=first + 3, running=(first + 1,))
    rows = _rows(TABLE, Span(0, int(ENDS[3]), seen))
    assert [row[:2] for row in _listed(rows)] == [("u", 1), ("d", 2)]
    assert rows.end == ENDS[3]


def test_a_table_that_was_changed_is_refused_and_older_rows_are_taken() -> None:
    upto = int(ENDS[7])
    with pytest.raises(DataError, match="'extra' was added") as error:
        _rows(TABLE, Span(0, upto))
    assert error.value.code == "CDC_TABLE_CHANGED"
    with pytest.raises(DataError, match="'extra' is gone"):
        _rows(WIDER, Span(0, upto))
    # A batch that is not fixed yet ends before the change, with rows that have the shape which is known.
    before = _rows(TABLE, Span(0))
    assert (before.end, len(_listed(before))) == (ENDS[6], 11)
    with pytest.raises(DataError, match="'extra' was added"):
        _rows(TABLE, Span(int(ENDS[6])), on_truncate="ignore")
    # A table that was looked up later: rows from before have the first default of the column.
    rows = _rows(replace(WIDER, looked_up_at=upto), Span(0, upto))
    assert {value for batch in rows.batches for value in batch.column("extra").to_pylist()} == {7}
    other = replace(
        TABLE, columns=(TABLE.columns[0], replace(TABLE.columns[1], oid=1043), *TABLE.columns[2:])
    )
    with pytest.raises(DataError, match="another type"):
        _rows(other, Span(0, int(ENDS[0])))
    with pytest.raises(DataError, match="dropped and made again"):
        _rows(replace(TABLE, oid=1), Span(0, int(ENDS[0])))


def test_a_truncate_and_a_value_that_spark_does_not_have_are_refused() -> None:
    table = replace(WIDER, looked_up_at=int(ENDS[-1]))
    with pytest.raises(DataError, match="TRUNCATE"):
        _rows(table, Span(0))
    assert _rows(table, Span(0), on_truncate="ignore").end == ENDS[-1]
    with pytest.raises(DataError, match="'NaN' of column 'n'") as error:
        _rows(TABLE, Span(0, int(ENDS[0])), specials="fail")
    assert "special_values: null" in str(error.value.hint)


def test_only_the_columns_that_are_read_are_copied() -> None:
    messages = pgoutput.parse(recorded.MESSAGES)
    place, relation = next(iter(pgoutput.relations(messages).items()))
    changes = pgoutput.decode(messages, np.array([place + 1]), relation, columns=["a"], key=["id"])
    assert {name: values.to_pylist() for name, values in changes.texts.items()} == {"a": ["x"], "id": ["1"]}


def test_numbers_of_transactions_begin_again_after_the_last() -> None:
    top = 1 << 32
    seen = Visibility(low=top - 2, high=top + 5, running=(top + 1,))
    xids = np.array([top - 3, top - 2, 0, 1, 2, 5, 9])
    assert seen.sees(xids).tolist() == [True, True, True, False, True, False, False]
