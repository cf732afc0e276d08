"""VOID inside of other types, as in `array()` and `map()`: Arrow has it neither as NOT NULL nor as the key of a map."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps

QUERIES = {
    "SELECT a, array() AS x FROM src": pa.list_(pa.null()),
    "SELECT a, map() AS x FROM src": pa.map_(pa.bool_(), pa.null()),
    "SELECT a, array(map()) AS x FROM src": pa.list_(pa.map_(pa.bool_(), pa.null())),
    "SELECT a, map_entries(map()) AS x FROM src": pa.list_(
        pa.struct([("key", pa.null()), ("value", pa.null())])
    ),
    "SELECT a, named_struct('k', map(), 'v', NULL) AS x FROM src": pa.struct(
        [("k", pa.map_(pa.bool_(), pa.null())), ("v", pa.null())]
    ),
    "SELECT count(*) AS a, first(map()) AS x FROM src": pa.map_(pa.bool_(), pa.null()),
    "SELECT a, x FROM (SELECT a, if(a > 1, NULL, map()) AS m FROM src) LATERAL VIEW OUTER explode(m) AS x, y": pa.null(),
    "SELECT a, explode(map()) AS (x, y) FROM src": pa.null(),
}


@pytest.mark.parametrize(("query", "kind"), QUERIES.items(), ids=list(QUERIES))
def test_void_inside_of_other_types(session: ps.Session, query: str, kind: pa.DataType) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("src", "a INT")
    flow.register_view("out", query)
    flow.tick("src", ps.DeltaBatch.inserts([{"a": 1}, {"a": 2}, {"a": 3}]))
    flow.tick("src", ps.DeltaBatch.deletes([{"a": 3}]))
    session.sql("CREATE OR REPLACE TEMPORARY VIEW void_table AS SELECT * FROM VALUES (1), (2) AS t(a)")
    batch = session.sql_with_timeout(query.replace("FROM src", "FROM void_table"), 120_000)
    view = flow.snapshot("out")
    for table in (batch, view):
        assert table.schema.field("x").type.equals(kind, check_metadata=False), table.schema
    assert sorted(map(str, view.to_pylist())) == sorted(map(str, batch.to_pylist()))
    submitted = session.submit(query.replace("FROM src", "FROM void_table"))
    assert submitted.result(timeout=120).num_rows == batch.num_rows
