from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.transforms.lookup.enrich import distinct


@pytest.mark.parametrize(
    "columns",
    [
        [[3, 1, 3, None, 1]],
        [[3, 1, 3, 1]],
        [["a", "b", "a", None], [1, 1, 1, 1]],
        [["a", "a", "b", "b"], [1, 2, 1, 2], [None, True, True, True]],
        [[None, None]],
        [[]],
        [[], []],
    ],
)
def test_each_row_finds_its_key(columns: list[list[Any]]) -> None:
    positions, keys = distinct([pa.array(column) for column in columns])
    rows = list(zip(*columns, strict=True))
    assert len(set(keys)) == len(keys)
    assert [None if None in row else row for row in rows] == [
        keys[at] if at < len(keys) else None for at in positions
    ]
