"""ASOF views through a flow, which needs no Spark for them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow

MINUTE = 60_000_000


def trade(number: int, symbol: str | None, minute: int | None) -> dict[str, Any]:
    return {"id": number, "symbol": symbol, "at": None if minute is None else minute * MINUTE}


def quote(symbol: str, minute: int, bid: int) -> dict[str, Any]:
    return {"symbol": symbol, "at": minute * MINUTE, "bid": bid}


@pytest.fixture
def flow() -> IncrementalFlow:
    made = IncrementalFlow()
    made.register_source("trades", "id BIGINT, symbol STRING, at BIGINT")
    made.register_source("quotes", "symbol STRING, at BIGINT, bid BIGINT")
    return made


def priced(flow: IncrementalFlow, **options: Any) -> ps.IncrementalFlow:
    shape: dict[str, Any] = {
        "left": "trades",
        "right": "quotes",
        "by": "symbol",
        "left_time": "at",
        "right_time": "at",
        "columns": ["bid"],
    }
    flow.register_asof_view("priced", **{**shape, **options})
    return flow


def bids(flow: IncrementalFlow) -> dict[int, int | None]:
    return {row["id"]: row["bid"] for row in flow.snapshot("priced").to_pylist()}


@pytest.mark.smoke
def test_quotes_that_come_late_change_the_trades_behind_them(flow: IncrementalFlow) -> None:
    priced(flow)
    flow.feed(
        "trades",
        [trade(1, "a", 1), trade(2, "a", 5), trade(3, "b", 5), trade(4, None, 5), trade(5, "a", None)],
    )
    flow.feed("quotes", [quote("a", 1, 10), quote("b", 6, 20)])
    flow.step()
    assert bids(flow) == {1: 10, 2: 10, 3: None, 4: None, 5: None}
    summary = flow.tick("quotes", [quote("a", 4, 11)])
    assert (summary.views["priced"].inserted, summary.views["priced"].retracted) == (1, 1)
    assert bids(flow)[2] == 11
    flow.tick("quotes", DeltaBatch.updates([quote("a", 4, 11)], [quote("a", 4, 12)]))
    assert bids(flow)[2] == 12
    flow.tick("quotes", DeltaBatch.deletes([quote("a", 4, 12), quote("a", 1, 10)]))
    assert bids(flow) == {1: None, 2: None, 3: None, 4: None, 5: None}
    flow.tick("trades", DeltaBatch.deletes([trade(4, None, 5)]))
    assert 4 not in bids(flow)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"direction": "forward"}, {1: 1, 2: 6, 3: None}),
        ({"direction": "nearest"}, {1: 1, 2: 6, 3: 6}),
        ({"direction": "nearest", "tolerance": MINUTE}, {1: 1, 2: 6, 3: None}),
        ({"how": "inner", "tolerance": 4 * MINUTE}, {1: 1, 2: 1}),
        ({"by": [("symbol", "symbol")]}, {1: 1, 2: 1, 3: 6}),
    ],
)
def test_directions_and_tolerance(flow: IncrementalFlow, options: dict[str, Any], expected: Any) -> None:
    priced(flow, **options)
    flow.feed("trades", [trade(1, "a", 1), trade(2, "a", 5), trade(3, "a", 20)])
    flow.feed("quotes", [quote("a", 1, 1), quote("a", 6, 6)])
    flow.step()
    assert bids(flow) == expected


def test_a_view_on_data_is_filled_and_read_by_others(flow: IncrementalFlow) -> None:
    flow.feed("trades", [trade(1, "a", 1)])
    flow.feed("quotes", [quote("a", 1, 5), quote("a", 1, 3)])
    flow.step()
    explanation = priced(flow, columns={"quoted": "at", "bid": "bid"}).explain("priced")
    assert explanation.tier == "kernel"
    assert "Asof left backward on at, at by symbol = symbol" in str(explanation)
    assert flow.snapshot("priced").to_pylist() == [
        {"id": 1, "symbol": "a", "at": MINUTE, "quoted": MINUTE, "bid": 3}
    ]
    flow.register_asof_view(
        "again", left="priced", right="priced", left_time="at", right_time="quoted", columns={"other": "id"}
    )
    flow.tick("trades", [trade(2, "a", 2)])
    assert [row["other"] for row in flow.snapshot("again").to_pylist()] == [1, 1]
    rebuilt = IncrementalFlow.from_definition(flow.definition())
    assert str(rebuilt.explain("priced")) == str(explanation)


def test_recomputing_gives_the_same(flow: IncrementalFlow) -> None:
    priced(flow).force_diff_based()
    flow.tick("trades", [trade(1, "a", 1), trade(2, "a", 5)])
    flow.tick("quotes", [quote("a", 1, 10)])
    assert bids(flow) == {1: 10, 2: 10}
    flow.tick("quotes", DeltaBatch.deletes([quote("a", 1, 10)]))
    assert bids(flow) == {1: None, 2: None}


def test_dates_are_apart_by_days() -> None:
    flow = IncrementalFlow()
    flow.register_source("a", "id BIGINT, day DATE")
    flow.register_source("b", "on DATE, v BIGINT")
    flow.register_asof_view(
        "joined",
        left="a",
        right="b",
        left_time="day",
        right_time="on",
        tolerance=timedelta(days=2),
        columns=["v"],
    )
    flow.feed("a", [{"id": 1, "day": date(2024, 3, 1)}, {"id": 2, "day": date(2024, 3, 3)}])
    flow.feed("b", [{"on": date(2024, 2, 28), "v": 7}])
    flow.step()
    assert flow.snapshot("joined").to_pylist()[0]["v"] == 7
    assert flow.snapshot("joined").to_pylist()[1]["v"] is None


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        ({"left": "trade"}, "FLOW_UNKNOWN_RELATION", "trades"),
        ({"by": "symbl"}, "FLOW_UNKNOWN_COLUMN", "symbol"),
        ({"direction": "sideways"}, "FLOW_OPTION", "backward"),
        ({"how": "full"}, "FLOW_OPTION", "left"),
        ({"columns": None}, "FLOW_SCHEMA", "two columns 'at'"),
        ({"columns": ["id"]}, "FLOW_UNKNOWN_COLUMN", "'quotes' has no column 'id'"),
        ({"right_time": "symbol"}, "FLOW_TYPES_DIFFER", "'quotes.symbol' is string"),
        ({"left_time": "symbol", "right_time": "symbol", "by": ()}, "FLOW_OPTION", "nearest string"),
        ({"tolerance": -1}, "FLOW_OPTION", "not negative"),
        ({"tolerance": "1 day"}, "FLOW_OPTION", "whole number"),
    ],
)
def test_mistakes(flow: IncrementalFlow, options: dict[str, Any], code: str, part: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        priced(flow, **options)
    assert caught.value.code == code
    assert part in str(caught.value)
    assert flow.tick("trades", [trade(1, "a", 1)]).views == {}
