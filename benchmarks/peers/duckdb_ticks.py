"""DuckDB: apply the change to the tables and compute the query again, in memory."""

from __future__ import annotations

import json
import sys
import time

import duckdb

from workload import CASES, Table


def main(options: dict[str, object]) -> dict[str, object]:
    case = CASES[str(options["case"])]
    rows, ticks = int(str(options["rows"])), int(str(options["ticks"]))
    tables = {name: Table(name, rows) for name in case.tables}
    database = duckdb.connect()
    for name, table in tables.items():
        loaded = table.load()
        database.register("loaded", loaded)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM loaded")
        database.unregister("loaded")
    found = []
    for _ in range(ticks + 1):
        changes = {name: table.change(1000) for name, table in tables.items()}
        begin = time.perf_counter()
        for name, change in changes.items():
            database.register("change", change)
            key = change.column_names[0]
            columns = ", ".join(change.column_names[:-1])
            database.execute(
                f"DELETE FROM {name} WHERE {key} IN (SELECT {key} FROM change WHERE _weight < 0)"
            )
            database.execute(f"INSERT INTO {name} SELECT {columns} FROM change WHERE _weight > 0")
            database.unregister("change")
        database.execute(f"CREATE OR REPLACE TABLE result AS {case.sql}")
        found.append((time.perf_counter() - begin) * 1000)
    return {"ms": found[1:], "version": duckdb.__version__}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
