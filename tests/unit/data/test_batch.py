from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars
import pyarrow as pa
import pytest

from penstock.data.batch import DeltaBatch
from penstock.errors import DataError

ROW = {"id": 1, "v": "a"}


def test_inserts_deletes_and_updates_carry_weights() -> None:
    assert DeltaBatch.inserts([ROW]).to_pylist() == [{**ROW, "_weight": 1}]
    assert DeltaBatch.deletes([ROW]).to_pylist() == [{**ROW, "_weight": -1}]
    update = DeltaBatch.updates([ROW], [{"id": 1, "v": "b"}])
    assert [row["_weight"] for row in update.to_pylist()] == [-1, 1]


def test_sums_negations_and_consolidation() -> None:
    both = DeltaBatch.inserts([ROW, ROW]) + DeltaBatch.deletes([ROW])
    assert len(both) == 3
    assert both.consolidate().to_pylist() == [{**ROW, "_weight": 1}]
    assert len((both - both).consolidate()) == 0
    assert (-both).consolidate().to_pylist() == [{**ROW, "_weight": -1}]
    assert repr(both) == "DeltaBatch(+2 -1, columns: id, v)"


def test_columns_are_matched_by_name_and_types_widen() -> None:
    left = DeltaBatch.inserts(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    right = DeltaBatch.inserts(pa.table({"b": ["y"], "a": pa.array([2], pa.int64())}))
    assert (left + right).table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_weighted_rows_drop_zeros() -> None:
    batch = DeltaBatch.weighted([{**ROW, "_weight": 2}, {"id": 2, "v": "b", "_weight": 0}])
    assert batch.to_pylist() == [{**ROW, "_weight": 2}]


@pytest.mark.parametrize(
    ("words", "weights"),
    [
        (["c", "u", "d", "r"], [1, 1, -1, 1]),
        (["insert", "update_preimage", "update_postimage", "delete"], [1, 1, -1]),
        (["+I", "-U", "+U", "-D"], [1, 1, -1]),
    ],
)
def test_change_streams(words: list[str], weights: list[int]) -> None:
    batch = DeltaBatch.from_cdc([{"op": word, "id": 1} for word in words], keys=["id"])
    assert batch.weights.tolist() == weights
    assert batch.keys == ("id",)
    assert batch.table.column_names == ["id"]


def test_other_libraries_read_it() -> None:
    batch = DeltaBatch.inserts([ROW])
    assert batch.to_polars().equals(polars.DataFrame({"id": [1], "v": ["a"], "_weight": [1]}))
    assert pa.table(batch).num_rows == 1


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: DeltaBatch.weighted([ROW]), "DELTA_WEIGHT_MISSING"),
        (lambda: DeltaBatch.weighted([{**ROW, "_weight": None}]), "DELTA_WEIGHT_NULL"),
        (lambda: DeltaBatch.weighted([{**ROW, "_weight": 1.5}]), "DELTA_WEIGHT_TYPE"),
        (lambda: DeltaBatch.inserts([{**ROW, "_weight": 1}]), "DELTA_WEIGHT_PRESENT"),
        (lambda: DeltaBatch.updates([ROW], []), "DATA_EMPTY"),
        (lambda: DeltaBatch.updates([ROW], [ROW, ROW]), "DELTA_UPDATE_LENGTH"),
        (lambda: DeltaBatch.upserts([ROW], keys=["ids"]), "DELTA_KEYS_MISSING"),
        (lambda: DeltaBatch.upserts([ROW], keys=[]), "DELTA_KEYS_MISSING"),
        (lambda: DeltaBatch.upserts([{"id": None, "v": "a"}], keys=["id"]), "DELTA_KEYS_NULL"),
        (lambda: DeltaBatch.from_cdc([{"op": "x", "id": 1}], keys=["id"]), "DELTA_CDC_OP"),
        (lambda: DeltaBatch.from_cdc([ROW], keys=["id"]), "DELTA_CDC_OP"),
        (lambda: DeltaBatch.inserts([ROW]) + DeltaBatch.inserts([{"id": 1}]), "DELTA_COLUMNS_DIFFER"),
        (
            lambda: DeltaBatch.inserts([ROW]) + DeltaBatch.inserts([{"id": "x", "v": "a"}]),
            "DELTA_COLUMNS_DIFFER",
        ),
        (lambda: DeltaBatch.inserts([ROW]) + DeltaBatch.upserts([ROW], keys="id"), "DELTA_KEYS_DIFFER"),
        (lambda: DeltaBatch.upserts([ROW], keys="id").consolidate(), "DELTA_KEYS_CONSOLIDATE"),
    ],
)
def test_mistakes_are_named(make: Callable[[], Any], code: str) -> None:
    with pytest.raises(DataError) as caught:
        make()
    assert caught.value.code == code
