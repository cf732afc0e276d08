"""Krishiv: the query as an incremental view of an in-process job."""

from __future__ import annotations

import json
import sys
import time
from tempfile import NamedTemporaryFile

import krishiv
import pyarrow as pa
import pyarrow.parquet as pq
from krishiv import krishiv as native

from workload import CASES, Table

# The result of each query as the wheel wants it declared.
OUTPUT: dict[str, dict[str, type]] = {
    "aggregate": {"customer": int, "s": float, "n": int, "a": float, "lo": float, "hi": float},
    "join": {"city": int, "s": float, "n": int},
    "top-10": {"id": int, "product": int, "amount": float, "place": int},
    "count distinct": {"customer": int, "n": int},
    "left join": {"id": int, "amount": float, "city": int},
    "window": {"id": int, "customer": int, "amount": float, "place": int},
}


def batches(session: krishiv.Session, table: pa.Table) -> list[object]:
    """Arrow rows as the wheel's own batches; it makes them only of what it has read itself."""
    with NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(table, file.name)
        found: list[object] = session.read_parquet(file.name).collect().batches()
    return found


def main(options: dict[str, object]) -> dict[str, object]:
    case = CASES[str(options["case"])]
    rows, ticks = int(str(options["rows"])), int(str(options["ticks"]))
    tables = {name: Table(name, rows) for name in case.tables}
    session = krishiv.Session.embedded()
    job = session.ivm("bench")
    schema = type("Result", (krishiv.Schema,), {"__annotations__": OUTPUT[case.name]})
    job.register_view("result", case.sql, schema, is_materialized=True)
    delta = native.DeltaBatch
    for name, table in tables.items():
        for rows_in in batches(session, table.load()):
            job.feed(name, delta.from_inserts(rows_in))
    begin = time.perf_counter()
    job.step()
    load = time.perf_counter() - begin
    found = []
    for _ in range(ticks):
        changes = []
        for name, table in tables.items():
            change = table.change(1000)
            weights = change["_weight"].to_numpy()
            plain = change.drop_columns(["_weight"])
            for make, chosen in ((delta.from_inserts, weights > 0), (delta.from_deletes, weights < 0)):
                changes += [(name, make(rows_in)) for rows_in in batches(session, plain.filter(chosen))]
        begin = time.perf_counter()
        for name, change in changes:
            job.feed(name, change)
        job.step()
        found.append((time.perf_counter() - begin) * 1000)
    return {"ms": found, "load": load}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
