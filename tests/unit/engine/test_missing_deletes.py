"""Retractions of rows that are not there, in a source that ignores them."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps

SCHEMA = "k BIGINT, v STRING"


@pytest.mark.parametrize("retain", ["all", "used"])
@pytest.mark.parametrize("key", ["k", None])
def test_they_are_nothing_also_when_the_log_is_replayed(key: str | None, retain: str, tmp_path: Path) -> None:
    with ps.IncrementalFlow(path=tmp_path) as flow:
        flow.register_source("rows", SCHEMA, primary_key=key, retain=retain, on_missing_delete="ignore")
        flow.tick("rows", ps.DeltaBatch.deletes([{"k": 1, "v": "a"}]))
        flow.tick("rows", [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
        flow.tick("rows", ps.DeltaBatch.deletes([{"k": 2, "v": "b"}, {"k": 3, "v": "c"}]))
        assert flow.quarantined("rows").num_rows == 0
        expected = [{"k": 1, "v": "a"}]
        if retain == "all":
            assert flow.snapshot("rows").to_pylist() == expected
    with ps.IncrementalFlow(path=tmp_path) as again:
        assert [source.rows for source in again.sources()] == [1]
        assert [source.options.get("on_missing_delete") for source in again.sources()] == ["ignore"]
