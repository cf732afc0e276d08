"""Which columns of now the columns of an older shape are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.sources.postgres.column import TableColumn
from penstock.sources.postgres.layout import with_names_of_now
from penstock.sources.postgres.pgoutput import RelationColumn, RelationMessage
from penstock.sources.postgres.table import Table


def _now(layout: Sequence[str | None], others: Sequence[str] = ()) -> Table:
    names = [name for name in layout if name is not None and name not in others]
    columns = tuple(TableColumn(name, "text", 23 if name[0] == "n" else 25, -1, "string") for name in names)
    return Table(
        1, "public", "t", columns, tuple(others), ("id",), "default", ("id",), False, True, 0, tuple(layout)
    )


def _then(names: Sequence[str]) -> RelationMessage:
    columns = tuple(RelationColumn(name, 23 if name[0] == "n" else 25, -1, False) for name in names)
    return RelationMessage(1, "public", "t", "d", columns)


@pytest.mark.parametrize(
    ("then", "now", "names"),
    [
        (["id", "a"], ["id", "a"], ["id", "a"]),
        (["id", "a"], ["id", "a", "b"], ["id", "a"]),
        (["id", "a", "b"], ["id", None, "b"], ["id", None, "b"]),
        # Renamed: alone, with one that came and with one that went.
        (["id", "a"], ["id", "b"], ["id", "b"]),
        (["id", "a"], ["id", "b", "c"], ["id", "b"]),
        (["id", "a", "b"], ["id", "c", None], ["id", "c", None]),
        # Two that took each other's name, and a new one with the old name of another.
        (["id", "a", "b"], ["id", "b", "a"], ["id", "b", "a"]),
        (["id", "a"], ["id", "b", "a"], ["id", "b"]),
        # One that came in the place of another: the type tells that it is none that was renamed.
        (["id", "a"], ["id", None, "n"], ["id", None]),
        (["id", "a", "z"], ["id", None, "z", "b"], ["id", None, "z"]),
        # It was dropped before, or it has another name now.
        (["id", "a"], ["id", None, "b"], None),
        (["id", "a", "b", "c"], ["id", "x"], None),
    ],
)
def test_columns_keep_their_place(
    then: list[str], now: list[str | None], names: list[str | None] | None
) -> None:
    table = _now(now)
    found = with_names_of_now(_then(then), table)
    if names is None:
        assert found is None
        return
    assert found is not None
    read = {column.name for column in table.columns}
    assert [column.name if column.name in read else None for column in found.columns] == names


def test_columns_that_are_not_read_are_told_by_their_names() -> None:
    table = _now(["id", "secret", "b"], others=["secret"])
    found = with_names_of_now(_then(["id", "secret", "a"]), table)
    assert found is not None
    assert [column.name for column in found.columns][::2] == ["id", "b"]
    # Perhaps it is the one that is not read, under another name.
    assert with_names_of_now(_then(["id", "a"]), table) is None
