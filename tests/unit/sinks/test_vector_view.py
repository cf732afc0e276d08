"""`flow.sink(view, "vector", ...)`: an embedded LanceDB follows a view, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import pytest

import penstock as ps


def flow_of(path: Path | None = None) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow(path=path)
    flow.register_source("docs", "id BIGINT, vec ARRAY<FLOAT>", primary_key="id")
    spec = ps.VectorViewSpec(source="docs", id="id", embedding="vec", query=[1, 0], k=2, payload={"v": "vec"})
    flow.register_vector_view("similar", spec)
    return flow


def options(path: Path) -> dict[str, Any]:
    return {"uri": str(path), "table": "similar", "embedding": "v", "dimensions": 2}


def ids(path: Path) -> list[int]:
    rows = lancedb.connect(str(path)).open_table("similar").to_arrow()
    return sorted(rows.column("id").to_pylist())


def test_the_index_follows_the_view_over_restarts(tmp_path: Path) -> None:
    place = tmp_path / "lance"
    with flow_of(tmp_path / "flow") as flow:
        flow.tick("docs", [{"id": n, "vec": [1.0, n]} for n in range(4)])
        flow.sink("similar", "vector", key="id", **options(place))
        assert ids(place) == [0, 1]
        flow.tick("docs", ps.DeltaBatch.deletes([{"id": 0, "vec": None}]))
        assert flow.flush_sinks(timeout=60)
        assert ids(place) == [1, 2]
    with ps.IncrementalFlow(path=tmp_path / "flow") as flow:
        flow.tick("docs", [{"id": 9, "vec": [5.0, 0.0]}])
        assert flow.flush_sinks(timeout=60)
        assert ids(place) == [1, 9]


def test_tables_of_others_and_wide_keys_are_refused(tmp_path: Path) -> None:
    with flow_of() as flow:
        flow.tick("docs", [{"id": 1, "vec": [1.0, 1.0]}])
        flow.sink("similar", "vector", key="id", **options(tmp_path))
    with flow_of() as flow:
        with pytest.raises(ps.ConfigError) as caught:
            flow.sink("similar", "vector", key="id", **options(tmp_path))
        assert caught.value.code == "FLOW_SINK_NOT_EMPTY"
        with pytest.raises(ps.ConfigError, match="key of one column"):
            flow.sink("similar", "vector", key=["id", "score"], **options(tmp_path))
        flow.sink("similar", "vector", key="id", overwrite=True, **options(tmp_path))
        assert ids(tmp_path) == []
