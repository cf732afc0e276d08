"""Vector views through a flow, which needs no Spark for them, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow, VectorViewSpec

INFINITY, NAN = float("inf"), float("nan")


def doc(number: int, vector: Any, title: str = "t") -> dict[str, Any]:
    return {"doc_id": number, "title": title, "vec": vector}


def register(flow: IncrementalFlow, name: str = "similar", **options: Any) -> Any:
    shape: dict[str, Any] = {"source": "docs", "id": "doc_id", "embedding": "vec", "query": [1.0, 0.0]}
    return flow.register_vector_view(name, VectorViewSpec(**{**shape, **options}))


def ids(flow: IncrementalFlow, name: str = "similar") -> list[int]:
    return [row["doc_id"] for row in flow.snapshot(name).to_pylist()]


@pytest.fixture
def flow() -> IncrementalFlow:
    made = IncrementalFlow()
    made.register_source("docs", "doc_id BIGINT, title STRING, vec ARRAY<FLOAT>", primary_key="doc_id")
    return made


@pytest.mark.smoke
def test_the_nearest_rows_follow_inserts_updates_and_deletes(flow: IncrementalFlow) -> None:
    explanation = register(flow, k=2, payload=["title"], index={"kind": "exact"})
    assert explanation.tier == "kernel"
    assert "TopK 2 rows by score desc, doc_id" in str(explanation)
    flow.tick("docs", [doc(1, [1, 0]), doc(2, [0, 1]), doc(3, [1, 1]), doc(4, None), doc(5, [-1, 0])])
    assert flow.snapshot("similar").to_pylist() == [
        {"doc_id": 1, "score": 1.0, "title": "t"},
        {"doc_id": 3, "score": pytest.approx(0.5**0.5), "title": "t"},
    ]
    flow.tick("docs", [doc(4, [2, 0.1]), doc(1, [1, 0], "new")])
    assert [row["title"] for row in flow.snapshot("similar").to_pylist()] == ["new", "t"]
    assert ids(flow) == [1, 4]
    flow.tick("docs", DeltaBatch.deletes([doc(1, None)]))
    assert ids(flow) == [4, 3]
    assert flow.tick("docs", [doc(6, [-1, -1])]).views["similar"].inserted == 0


def test_metrics_and_their_directions(flow: IncrementalFlow) -> None:
    for metric in ("cosine", "l2", "dot"):
        register(flow, metric, metric=metric)
    flow.tick("docs", [doc(1, [3, 4]), doc(2, [1, 0]), doc(3, [0, 5])])
    rows = {name: flow.snapshot(name).to_pylist() for name in ("cosine", "l2", "dot")}
    assert [(row["doc_id"], row["score"]) for row in rows["cosine"]] == [(2, 1.0), (1, 0.6), (3, 0.0)]
    assert [(row["doc_id"], row["distance"]) for row in rows["l2"]] == [
        (2, 0.0),
        (1, pytest.approx(20**0.5)),
        (3, pytest.approx(26**0.5)),
    ]
    assert [(row["doc_id"], row["score"]) for row in rows["dot"]] == [(1, 3.0), (2, 1.0), (3, 0.0)]


@pytest.mark.parametrize(
    "query",
    [
        [[1, 0], [0, 1]],
        ((1, 0), (0, 1)),
        np.eye(2),
        [np.array([1.0, 0.0]), pa.array([0.0, 1.0])],
        pa.array([[1.0, 0.0], [0.0, 1.0]]),
    ],
    ids=["lists", "tuples", "matrix", "arrays", "arrow"],
)
def test_several_queries_have_numbers(flow: IncrementalFlow, query: Any) -> None:
    register(flow, query=query, k=1, metric="l2")
    flow.tick("docs", [doc(1, [1, 0]), doc(2, [0, 1])])
    assert flow.snapshot("similar").to_pylist() == [
        {"query": 0, "doc_id": 1, "distance": 0.0},
        {"query": 1, "doc_id": 2, "distance": 0.0},
    ]


def test_queries_may_have_labels(flow: IncrementalFlow) -> None:
    register(flow, query={"up": [0, 1], "right": np.array([1, 0])}, k=1, payload={"name": "title"})
    flow.tick("docs", [doc(1, [1, 0], "x"), doc(2, [0, 1], "y")])
    assert flow.snapshot("similar").to_pylist() == [
        {"query": "right", "doc_id": 1, "score": 1.0, "name": "x"},
        {"query": "up", "doc_id": 2, "score": 1.0, "name": "y"},
    ]
    assert flow.lookup("similar", query="up").to_pylist()[0]["doc_id"] == 2


def test_a_query_has_the_precision_of_the_column(flow: IncrementalFlow) -> None:
    register(flow, query=[0.1, 0.2], metric="l2")
    flow.tick("docs", [doc(1, [0.1, 0.2])])
    assert flow.snapshot("similar").to_pylist() == [{"doc_id": 1, "distance": 0.0}]


def test_fixed_size_lists_and_doubles() -> None:
    flow = IncrementalFlow()
    flow.register_source("docs", pa.schema({"doc_id": pa.int64(), "vec": pa.list_(pa.float64(), 2)}))
    register(flow, query=(0, 1))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0, 2.0, 1.0, 1.0]), 2)
    flow.tick("docs", pa.table({"doc_id": [1, 2], "vec": vectors}))
    assert ids(flow) == [1, 2]
    # The same row twice takes two places.
    flow.tick("docs", [{"doc_id": 1, "vec": [0.0, 2.0]}])
    assert ids(flow) == [1, 1, 2]


def test_a_view_is_filled_read_and_built_upon(flow: IncrementalFlow, tmp_path: Path) -> None:
    flow.tick("docs", [doc(1, [1, 0]), doc(2, [1, 1]), doc(3, [0, 1])])
    register(flow, k=2, payload=["vec"])
    # A vector view may be the source of another one.
    register(flow, "second", source="similar", k=1, query=[0, 1])
    assert (ids(flow), ids(flow, "second")) == ([1, 2], [2])
    rebuilt = IncrementalFlow.from_definition(flow.definition())
    assert str(rebuilt.explain("second")) == str(flow.explain("second"))
    rebuilt.tick("docs", [doc(1, [1, 0]), doc(2, [1, 1])])
    assert ids(rebuilt, "second") == [2]
    flow.checkpoint(tmp_path / "checkpoint")
    loaded = IncrementalFlow.load(tmp_path / "checkpoint")
    loaded.tick("docs", DeltaBatch.deletes([doc(1, None)]))
    assert (ids(loaded), ids(loaded, "second")) == ([2, 3], [3])


def test_a_durable_flow_has_the_view_after_it_is_opened_again(tmp_path: Path) -> None:
    with IncrementalFlow(path=tmp_path / "flow") as flow:
        flow.register_source("docs", "doc_id BIGINT, vec ARRAY<FLOAT>", primary_key="doc_id")
        register(flow, k=1)
        flow.tick("docs", [{"doc_id": 1, "vec": [1, 1]}, {"doc_id": 2, "vec": [0, 1]}])
    with IncrementalFlow(path=tmp_path / "flow") as flow:
        flow.tick("docs", [{"doc_id": 1, "vec": [-1, 0]}])
        assert ids(flow) == [2]


def test_payload_of_any_type() -> None:
    flow = IncrementalFlow()
    flow.register_source(
        "docs", "doc_id BIGINT, tags MAP<STRING,INT>, vec ARRAY<FLOAT>, parts ARRAY<STRUCT<a:INT>>"
    )
    register(flow, k=2, payload=["tags", "parts", "vec"])
    schema = pa.schema(
        {
            "doc_id": pa.int64(),
            "tags": pa.map_(pa.string(), pa.int32()),
            "vec": pa.list_(pa.float32()),
            "parts": pa.list_(pa.struct({"a": pa.int32()})),
        }
    )
    row = {"doc_id": 1, "tags": [("a", 1)], "vec": [1.0, 0.0], "parts": [{"a": 1}]}
    twins = pa.Table.from_pylist([row, row], schema)
    flow.feed("docs", twins)
    flow.feed("docs", pa.Table.from_pylist([{**row, "tags": [("b", 1)]}], schema))
    flow.step()
    assert ids(flow) == [1, 1]
    flow.tick("docs", DeltaBatch.deletes(twins))
    assert flow.snapshot("similar").to_pylist()[0]["tags"] == [("b", 1)]


@pytest.mark.parametrize(
    ("vector", "metric", "code", "part"),
    [
        ([1.0], "cosine", "DATA_VECTOR_DIMENSION", "has 1 dimension, and the query has 2 dimensions"),
        ([], "dot", "DATA_VECTOR_DIMENSION", "has 0 dimensions"),
        ([1.0, 2.0, 3.0], "l2", "DATA_VECTOR_DIMENSION", "has 3 dimensions"),
        ([NAN, 1.0], "l2", "DATA_VECTOR_VALUE", "NaN"),
        ([1.0, INFINITY], "dot", "DATA_VECTOR_VALUE", "infinity"),
        ([1.0, None], "cosine", "DATA_VECTOR_VALUE", "has a NULL in it"),
        ([0.0, -0.0], "cosine", "DATA_VECTOR_VALUE", "zero in all dimensions"),
    ],
)
def test_bad_vectors_reject_the_tick(
    flow: IncrementalFlow, vector: Any, metric: str, code: str, part: str
) -> None:
    register(flow, metric=metric)
    flow.tick("docs", [doc(1, [1, 0])])
    with pytest.raises(ps.DataError) as caught:
        flow.tick("docs", [doc(2, [0, 1]), doc(3, None), doc(77, vector), doc(78, vector)])
    assert caught.value.code == code
    assert part in str(caught.value)
    assert "'vec' of the row with doc_id = 7" in str(caught.value)
    assert "1 more row" in str(caught.value)
    assert "view 'similar'" in str(caught.value.where)
    assert ids(flow) == [1]
    assert flow.snapshot("docs").num_rows == 1


def test_a_zero_vector_has_a_distance_and_a_product(flow: IncrementalFlow) -> None:
    register(flow, "l2", metric="l2")
    register(flow, "dot", metric="dot", query=[-1, 0])
    flow.tick("docs", [doc(1, [0, 0])])
    assert flow.snapshot("l2").to_pylist() == [{"doc_id": 1, "distance": 1.0}]
    assert repr(flow.snapshot("dot").to_pylist()[0]["score"]) == "0.0"


def test_numbers_at_the_ends_of_double() -> None:
    flow = IncrementalFlow()
    flow.register_source("docs", "doc_id BIGINT, vec ARRAY<DOUBLE>")
    for metric in ("cosine", "l2"):
        register(flow, metric, metric=metric, query=[3e-320, 4e-320])
    flow.tick("docs", [{"doc_id": 1, "vec": [3e300, 4e300]}, {"doc_id": 2, "vec": [6e-320, 8e-320]}])
    assert [row["score"] for row in flow.snapshot("cosine").to_pylist()] == pytest.approx([1, 1], rel=1e-3)
    far, near = (row["distance"] for row in reversed(flow.snapshot("l2").to_pylist()))
    assert near == pytest.approx(5e-320, rel=1e-3)
    assert far == pytest.approx(5e300)
    register(flow, "large", query=[3e300, 4e300])
    assert [row["score"] for row in flow.snapshot("large").to_pylist()] == pytest.approx([1, 1], rel=1e-3)
    register(flow, "dot", metric="dot", query=[0, 1])
    with pytest.raises(ps.DataError, match="beyond DOUBLE") as caught:
        flow.tick("docs", [{"doc_id": 3, "vec": [1.5e308, 1.5e308]}])
    assert caught.value.code == "DATA_OVERFLOW"


def test_a_suspended_view_does_not_hold_up_others(flow: IncrementalFlow) -> None:
    spec = VectorViewSpec(source="docs", id="doc_id", embedding="vec", query=[1, 0])
    flow.register_vector_view("similar", spec, on_error="suspend")
    flow.tick("docs", [doc(1, [1, 0])])
    assert flow.tick("docs", [doc(2, [1])]).views["similar"].suspended is not None
    flow.tick("docs", DeltaBatch.deletes([doc(2, None)]))
    flow.resume_view("similar")
    assert ids(flow) == [1]


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        ({"source": "doc"}, "FLOW_UNKNOWN_RELATION", "docs"),
        ({"id": "docid"}, "FLOW_UNKNOWN_COLUMN", "doc_id"),
        ({"embedding": "vect"}, "FLOW_UNKNOWN_COLUMN", "vec"),
        ({"payload": ["titel"]}, "FLOW_UNKNOWN_COLUMN", "title"),
        ({"metric": "cosin"}, "FLOW_OPTION", "cosine"),
        ({"index": {"kind": "hnsw"}}, "FLOW_OPTION", "exact"),
        ({"index": {"kind": "exact", "m": 16}}, "FLOW_OPTION", "no option 'm'"),
        ({"k": 0}, "FLOW_OPTION", "k=0"),
        ({"k": True}, "FLOW_OPTION", "k=True"),
        ({"k": 1.5}, "FLOW_OPTION", "k=1.5"),
        ({"embedding": "title"}, "FLOW_SCHEMA", "ARRAY<FLOAT>"),
        ({"payload": ["doc_id"]}, "FLOW_SCHEMA", "two columns 'doc_id'"),
        ({"payload": {"Score": "title"}}, "FLOW_SCHEMA", "two columns 'score'"),
        ({"query": [[1, 0]], "payload": {"query": "title"}}, "FLOW_SCHEMA", "two columns 'query'"),
        ({"query": []}, "FLOW_OPTION", "no dimensions"),
        ({"query": {}}, "FLOW_OPTION", "no query vector"),
        ({"query": "abc"}, "FLOW_OPTION", "not a list of numbers"),
        ({"query": ["a", "b"]}, "FLOW_OPTION", "not a list of numbers"),
        ({"query": [1, [2]]}, "FLOW_OPTION", "query vector 0 is not a list"),
        ({"query": {1: [1, 0]}}, "FLOW_OPTION", "label 1"),
        ({"query": [[1, 0], [1]]}, "FLOW_OPTION", "1 and 2 dimensions"),
        ({"query": [NAN, 1]}, "FLOW_OPTION", "NaN"),
        ({"query": [1e300, 1]}, "FLOW_OPTION", "beyond FLOAT"),
        ({"query": {"a": [0, 0]}}, "FLOW_OPTION", "query vector 'a' is zero"),
    ],
)
def test_mistakes(flow: IncrementalFlow, options: dict[str, Any], code: str, part: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        register(flow, **options)
    assert caught.value.code == code
    assert part in str(caught.value)
    assert flow.tick("docs", [doc(1, [1, 1])]).views == {}


def test_rows_that_are_there_are_judged_at_registration(flow: IncrementalFlow) -> None:
    flow.tick("docs", [doc(5, [1])])
    with pytest.raises(ps.DataError) as caught:
        register(flow)
    assert caught.value.code == "DATA_VECTOR_DIMENSION"
    assert "doc_id = 5" in str(caught.value)
    assert flow.tick("docs", [doc(5, [1, 0])]).views == {}
