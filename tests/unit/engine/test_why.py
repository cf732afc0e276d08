"""What `why` asks of the flow, and what it says when it cannot answer."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from twin.flows import FIELDS, SUM, TOTALS, VIEWS, join, no_fragment, view_scan


def add(flow: ps.IncrementalFlow, name: str, node: plan.Node, **options: Any) -> None:
    install(flow._graph, Prepared(plan.View(name, "", node, **options), no_fragment), 0)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow()
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    flow.register_source("names", "k BIGINT, name STRING", primary_key="k")
    add(flow, "totals", TOTALS)
    add(flow, "named", join("inner", view_scan("totals", FIELDS[:2])))
    flow.feed(
        "rows",
        [{"k": k, "v": k + v, "w": 0} for k in range(3) for v in range(2)] + [{"k": 1, "v": 1, "w": 0}],
    )
    flow.feed("names", [{"k": 1, "name": "one"}, {"k": 2, "name": "two"}])
    flow.step()
    return flow


def refused(flow: ps.IncrementalFlow, view: str, row: Any) -> ps.PenstockError:
    with pytest.raises(ps.PenstockError) as error:
        flow.why(view, row)
    return error.value


def test_it_lists_the_rows_of_every_source_and_says_what_it_read(flow: ps.IncrementalFlow) -> None:
    provenance = flow.why("named", {"name": "one"})
    assert provenance["names"].to_pylist() == [{"k": 1, "name": "one", "_weight": 1}]
    assert sorted(row["_weight"] for row in provenance["rows"].to_pylist()) == [1, 2]
    assert provenance.row == {"k": 1, "v": 4, "name": "one"}
    assert str(provenance).splitlines()[0] == "named: k=1, v=4, name='one'"
    assert "    k=1, v=1, w=0 (x 2)" in str(provenance).splitlines()
    assert "  read without an index: 2 rows of named" in str(provenance).splitlines()
    # The names are found by their key, and the totals by that of the join; nothing leads to the rows.
    assert provenance.scanned.keys() == {"named", "rows"}
    assert flow.why("totals", {"k": 1}).scanned == {"rows": 12}
    flow.lookup("rows", k=0)
    assert flow.why("totals", {"k": 1}).scanned == {}
    assert flow.why("totals", {"v": 4}).scanned == {"totals": 3}


def test_a_source_without_rows_behind_is_empty(flow: ps.IncrementalFlow) -> None:
    add(flow, "unnamed", join("anti", plan.Scan(FIELDS[:2], "rows", (0, 1))))
    provenance = flow.why("unnamed", {"k": 0, "v": 0})
    assert provenance["names"].num_rows == 0
    assert provenance["rows"].num_rows == 1


def test_a_row_that_is_not_there_or_not_the_only_one(flow: ps.IncrementalFlow) -> None:
    missing = refused(flow, "totals", {"k": 9})
    assert (missing.code, missing.message) == ("FLOW_WHY_ROW", "view 'totals' has no row with k=9")
    add(flow, "large", VIEWS["large"])
    several = refused(flow, "large", {"v": 2})
    assert several.code == "FLOW_WHY_ROW"
    assert "2 rows with v=2: k=1, v=2; k=2, v=2" in several.message
    assert refused(flow, "totals", {}).code == "FLOW_WHY_ROW"
    assert refused(flow, "totals", [("k", 1)]).code == "FLOW_WHY_ROW"
    unknown = refused(flow, "totals", {"kk": 1})
    assert (unknown.code, unknown.hint) == ("FLOW_UNKNOWN_COLUMN", "did you mean 'k'? Known columns: k, v")
    assert refused(flow, "total", {"k": 1}).code == "FLOW_UNKNOWN_VIEW"
    assert "is a source" in refused(flow, "rows", {"k": 1}).message


def test_a_recursion_is_refused_with_the_reason(flow: ps.IncrementalFlow) -> None:
    add(flow, "walked", VIEWS["walked"])
    (row, *_) = flow.snapshot("walked").to_pylist()
    error = refused(flow, "walked", row)
    assert error.code == "FLOW_WHY"
    assert "recursive" in error.message


def test_hidden_columns_of_an_order_belong_to_the_row(flow: ps.IncrementalFlow) -> None:
    """Two rows that differ in a column of the ORDER BY alone are one row for people."""
    add(flow, "by_w", plan.Scan(FIELDS, "rows", (0, 1, 2)), order=(plan.SortKey(2),), visible=2)
    flow.tick("rows", [{"k": 0, "v": 0, "w": 5}])
    assert flow.why("by_w", {"k": 0, "v": 0})["rows"].to_pylist() == [
        {"k": 0, "v": 0, "w": 0, "_weight": 1},
        {"k": 0, "v": 0, "w": 5, "_weight": 1},
    ]
    add(flow, "on_it", plan.Aggregate(FIELDS[:2], view_scan("by_w", FIELDS[:2]), (0,), (SUM,)))
    assert flow.why("on_it", {"k": 0})["rows"].num_rows == 3


def test_a_source_that_keeps_only_used_columns_is_refused() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT", retain="used")
    add(flow, "totals", TOTALS)
    flow.tick("rows", [{"k": 1, "v": 1, "w": 1}])
    assert refused(flow, "totals", {"k": 1}).code == "FLOW_NOT_RETAINED"


def test_a_flow_that_recomputes_gives_the_same(flow: ps.IncrementalFlow) -> None:
    before = flow.why("named", {"k": 1}).sources
    flow.force_diff_based()
    assert flow.why("named", {"k": 1}).sources == before


def test_a_suspended_view_is_refused(flow: ps.IncrementalFlow) -> None:
    install(flow._graph, Prepared(plan.View("sums", "", TOTALS), no_fragment, on_error="suspend"), 0)
    flow.drop_view("named")
    flow.drop_view("totals")
    flow.tick("rows", [{"k": 1, "v": 2**63 - 1, "w": 0}])
    error = refused(flow, "sums", {"k": 1})
    assert error.code == "FLOW_SUSPENDED"
    assert error.hint == "flow.resume_view('sums') brings it up to date"
