"""Vector views with a filter, which Spark plans, and SQL above them."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

DOCS = "doc_id BIGINT, lang STRING, `the.year` INT, vec ARRAY<FLOAT>"


def register(flow: ps.IncrementalFlow, name: str = "similar", **options: Any) -> Any:
    shape: dict[str, Any] = {
        "source": "docs",
        "id": "doc_id",
        "embedding": "vec",
        "query": [1.0, 0.0],
        "k": 2,
    }
    return flow.register_vector_view(name, ps.VectorViewSpec(**{**shape, **options}))


def doc(number: int, vector: Any, lang: str | None = "en", year: int = 2024) -> dict[str, Any]:
    return {"doc_id": number, "lang": lang, "the.year": year, "vec": vector}


@pytest.fixture
def flow(session: ps.Session) -> ps.IncrementalFlow:
    made = ps.IncrementalFlow(session)
    made.register_source("docs", DOCS, primary_key="doc_id")
    return made


def ids(flow: ps.IncrementalFlow, name: str = "similar") -> list[int]:
    return [row["doc_id"] for row in flow.snapshot(name).to_pylist()]


def test_a_filter_chooses_rows_before_they_are_scored(flow: ps.IncrementalFlow) -> None:
    explanation = register(flow, filter="lang = 'en' AND `the.year` > 2000", payload={"year": "the.year"})
    assert explanation.tier == "kernel"
    # A row that the filter refuses may have a bad vector.
    flow.tick(
        "docs", [doc(1, [1, 0]), doc(2, [1, 0.1], "de"), doc(3, [0, 1]), doc(4, [1], None), doc(5, [-1, 0])]
    )
    assert flow.snapshot("similar").to_pylist() == [
        {"doc_id": 1, "score": 1.0, "year": 2024},
        {"doc_id": 3, "score": 0.0, "year": 2024},
    ]
    flow.tick("docs", [doc(1, [1, 0], "en", 1999), doc(2, [1, 0.1])])
    assert ids(flow) == [2, 3]
    rebuilt = ps.IncrementalFlow.from_definition(flow.definition())
    rebuilt.tick("docs", [doc(1, [1, 0], "de"), doc(2, [0, 1])])
    assert ids(rebuilt) == [2]


def test_a_view_is_a_source_and_sql_reads_a_vector_view(flow: ps.IncrementalFlow) -> None:
    flow.register_view(
        "english", "SELECT doc_id, lang, CAST(vec AS ARRAY<DOUBLE>) AS vec FROM docs WHERE lang = 'en'"
    )
    register(flow, source="english", query={"a": [1, 0], "b": [0, 1]}, k=1, payload="lang")
    flow.register_view("labels", "SELECT doc_id, collect_list(query) AS queries FROM similar GROUP BY doc_id")
    flow.tick("docs", [doc(1, [1, 0]), doc(2, [0, 1], "de"), doc(3, [-1, -1])])
    assert flow.snapshot("labels").to_pylist() == [{"doc_id": 1, "queries": ["a", "b"]}]


@pytest.mark.parametrize(
    ("condition", "code", "part"),
    [
        ("langg = 'en'", "SQL_UNKNOWN_COLUMN", "lang"),
        ("lang = ", "SQL_SYNTAX", "filter"),
        ("length(lang)", "SQL_", "filter"),
        ("translate(lang, 'a', 'b') RLIKE lang", "FLOW_OPTION", "name it as the source"),
    ],
)
def test_filters_that_are_refused(flow: ps.IncrementalFlow, condition: str, code: str, part: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        register(flow, filter=condition)
    assert caught.value.code.startswith(code)
    assert part in str(caught.value)
    assert flow.tick("docs", [doc(1, [1, 0])]).views == {}
