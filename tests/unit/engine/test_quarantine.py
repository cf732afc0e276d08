"""Quarantined rows: the latest ones, and a count of those that made room for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.data.delta import Delta
from penstock.engine.quarantine import Quarantine, QuarantinedRows

TYPES = [pa.large_string()]


def rows(*texts: str) -> Delta:
    return Delta((pa.array(texts, pa.large_string()),), np.ones(len(texts), np.int64))


def texts(quarantine: Quarantine) -> list[str]:
    return quarantine.rows(TYPES)[0].columns[0].to_pylist()  # type: ignore[no-any-return]  # of Arrow


def test_the_oldest_go_when_there_are_too_many_rows() -> None:
    quarantine = Quarantine(most_rows=4)
    quarantine.add("a", rows("1", "2"))
    quarantine.add("b", rows("3", "4"))
    assert (len(quarantine), quarantine.dropped) == (4, 0)
    quarantine.add("c", rows("5"))
    assert (texts(quarantine), quarantine.dropped) == (["3", "4", "5"], 2)
    assert quarantine.rows(TYPES)[1] == ["b", "b", "c"]
    quarantine.add("d", rows(*"abcdef"))
    assert (texts(quarantine), quarantine.dropped) == (["c", "d", "e", "f"], 7)
    quarantine.clear()
    assert (len(quarantine), quarantine.bytes, quarantine.dropped) == (0, 0, 7)
    assert texts(quarantine) == []


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    quarantine = Quarantine(most_bytes=1_000)
    for number in range(5):
        quarantine.add("large", rows(f"{number}" * 400))
    assert [text[0] for text in texts(quarantine)] == ["3", "4"]
    assert (quarantine.dropped, quarantine.bytes <= 1_000) == (3, True)
    quarantine.add("larger", rows("x" * 5_000))
    assert texts(quarantine) == ["x" * 5_000], "the latest rows are there, whatever their size"


def test_an_extended_one_leaves_the_other_as_it_is() -> None:
    quarantine = Quarantine(most_rows=2)
    quarantine.add("a", rows("1", "2"))
    extended = quarantine.extended([QuarantinedRows("b", rows("3"))])
    assert (texts(extended), extended.dropped) == (["3"], 2)
    assert (texts(quarantine), quarantine.dropped, len(quarantine)) == (["1", "2"], 0, 2)


def test_a_flow_says_how_many_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT", on_missing_delete="quarantine")
    flow._graph.sources["orders"].state.quarantine.most_rows = 3
    for number in range(5):
        flow.tick("orders", ps.DeltaBatch.deletes([{"id": number}]))
    assert flow.quarantined("orders")["id"].to_pylist() == [2, 3, 4]
    metrics = flow.metrics()
    assert metrics["penstock_quarantine_rows"] == 3
    assert metrics["penstock_quarantine_dropped_rows_total"] == 2
    assert metrics["penstock_quarantine_bytes"] > 0
