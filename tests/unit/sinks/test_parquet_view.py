"""Changes of views as Parquet files: what is there is whole, and adds up to the view."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps
from twin.durable import add_view, declare, opened, tick


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    add_view(flow, "twice")
    tick(flow, [(1, 2, 0, False), (2, 1, 0, False)])


def _rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


def test_files_say_what_happened_to_each_key_and_a_restart_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "parquet", path=tmp_path / "out", key=["k"])
        tick(flow, [(1, 5, 0, False), (2, 1, 0, True)])
    with opened(tmp_path / "flow") as flow:
        tick(flow, [(3, 4, 0, False)])
        tick(flow, [])
    assert _rows(tmp_path / "out") == [
        {"k": 1, "v": 2, "_tick": 1, "_op": "r"},
        {"k": 2, "v": 1, "_tick": 1, "_op": "r"},
        {"k": 2, "v": 1, "_tick": 2, "_op": "d"},
        {"k": 1, "v": 7, "_tick": 2, "_op": "u"},
        {"k": 3, "v": 4, "_tick": 3, "_op": "i"},
    ]
    rows = pa.Table.from_pylist(_rows(tmp_path / "out")).drop_columns(["_tick"])
    with opened() as copy:
        copy.register_source("t", "k BIGINT, v BIGINT", primary_key="k")
        copy.tick("t", ps.DeltaBatch.from_cdc(rows, op="_op", keys=["k"]))
        assert copy.snapshot("t").to_pylist() == [{"k": 1, "v": 7}, {"k": 3, "v": 4}]


def test_rows_without_a_key_have_weights(tmp_path: Path) -> None:
    with opened() as flow:
        _fill(flow)
        flow.sink("twice", "parquet", path=tmp_path / "out")
        tick(flow, [(1, 2, 0, True), (3, 3, 0, False), (3, 3, 0, False)])
        assert flow.flush_sinks(60)
        expected = Counter((row["k"], row["v"]) for row in flow.snapshot("twice").to_pylist())
    total: Counter[tuple[int, int]] = Counter()
    for row in _rows(tmp_path / "out"):
        total[row["k"], row["v"]] += row["_weight"]
    assert +total == expected


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "parquet", path=tmp_path / "out", key=["k"])
        (name,) = [file.name for file in (tmp_path / "out").glob("*.parquet")]
        staged = tmp_path / "out" / "_penstock" / name.replace("0001-", "0002-")
        staged.write_bytes(b"half of")
        tick(flow, [(3, 4, 0, False)])
    assert not staged.exists()
    assert _rows(tmp_path / "out")[-1] == {"k": 3, "v": 4, "_tick": 2, "_op": "i"}


def test_a_folder_of_others_is_refused_until_it_is_overwritten(tmp_path: Path) -> None:
    for number in range(2):
        with opened() as flow:
            _fill(flow)
            if number:
                with pytest.raises(ps.ConfigError) as refused:
                    flow.sink("totals", "parquet", path=tmp_path, key=["k"])
                assert refused.value.code == "FLOW_SINK_NOT_EMPTY"
            flow.sink("totals", "parquet", path=tmp_path, key=["k"], overwrite=bool(number))
        assert len(_rows(tmp_path)) == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"path": "s3://bucket/out"}, "FLOW_SINK_OPTION_VALUE"),
        ({}, "FLOW_SINK_OPTION_MISSING"),
        ({"path": "out", "pth": 1}, "FLOW_SINK_OPTION_UNKNOWN"),
        ({"path": "out", "key": ["kk"]}, "FLOW_UNKNOWN_COLUMN"),
        ({"path": object()}, "FLOW_SINK_OPTION_VALUE"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(options: dict[str, Any], code: str) -> None:
    with opened() as flow:
        _fill(flow)
        with pytest.raises(ps.ConfigError) as refused:
            flow.sink("totals", "parquet", **options)
        assert refused.value.code == code
        assert flow.explain("totals").sinks == ()


@pytest.mark.parametrize(
    ("kind", "code", "hint"),
    [
        ("postgress", "UNKNOWN_SINK", "did you mean 'postgres'?"),
        ("csv", "FLOW_SINK_KIND", "views are followed by postgres"),
        ("postgres", "FLOW_SINK_KEY", "key=['k']"),
    ],
)
def test_a_sink_that_cannot_follow_a_view_says_which_can(kind: str, code: str, hint: str) -> None:
    options = {"url": "postgresql://db/shop", "table": "t"} if kind == "postgres" else {}
    with opened() as flow:
        _fill(flow)
        with pytest.raises(ps.ConfigError) as refused:
            flow.sink("totals", kind, **options)
        assert refused.value.code == code
        assert hint in str(refused.value.hint)
