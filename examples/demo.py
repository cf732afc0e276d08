"""The main job end to end on embedded defaults: `make demo` runs it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.pipeline.graph import text
from penstock.pipeline.load import load
from penstock.pipeline.run import PipelineRun, plan_pipeline

DATA = Path(__file__).parent / "data"
REVENUE = f"""
    SELECT s.country, p.category, count(*) AS orders, sum(o.amount) AS revenue
    FROM '{DATA}/orders.parquet' o
    JOIN '{DATA}/stores.csv' s USING (store_id)
    JOIN '{DATA}/products.json' p USING (product_id)
    GROUP BY s.country, p.category
    ORDER BY revenue DESC
    LIMIT 8
"""


# A process that feeds one order after another, and says so when its tick has returned.
FEEDER = """
import itertools, sys
import penstock as ps

with ps.IncrementalFlow(path=sys.argv[1]) as flow:
    for number in itertools.count(1):
        flow.tick("orders", [{"id": number, "customer_id": number % 3, "amount": 10}], ordinal=number)
        print(number, flush=True)
"""


def main() -> None:
    """Ask three files one question, see how Spark ran it, stop a query that would not end, and keep a view up to date."""
    started = time.perf_counter()
    with ps.Session.embedded() as session:
        say(f"a session, after {time.perf_counter() - started:.1f} s")

        say("batch SQL over a Parquet, a CSV and a JSON file: the best-selling categories by country")
        operation = session.submit(REVENUE)
        show(operation.result())

        say("the stages that it ran in, and where")
        print(session.explain_stages(operation))

        say("a query that would run for years, given half a second")
        asked = time.perf_counter()
        try:
            session.sql_with_timeout("SELECT count(*) FROM range(1e12) a CROSS JOIN range(1e12) b", 500)
        except ps.QueryTimeout as error:
            print(f"{error}\n({time.perf_counter() - asked:.1f} s, and the session goes on)")

        say("an incremental view over the same orders: 4,900 rows to begin with, then changes of ten")
        incremental(session)

        say("a flow that lasts: the process that feeds it is killed, and the flow goes on")
        killed(session)

        say("a pipeline in YAML with two views: what reads what, and what its first epoch prints")
        pipeline(session)

        say("a mistake")
        try:
            session.sql(f"SELECT contry FROM '{DATA}/stores.csv'")
        except ps.SqlError as error:
            print(error)
    say(f"done, in {time.perf_counter() - started:.1f} s; next: .venv/bin/penstock shell, or docs/tutorials")


def killed(session: ps.Session) -> None:
    """Kill the process that feeds a flow directory, and open the directory again: every tick that has returned is there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "orders"
        with ps.IncrementalFlow(session, path=path) as flow:
            flow.register_source("orders", "id BIGINT, customer_id BIGINT, amount BIGINT")
            flow.register_view(
                "totals", "SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY customer_id"
            )
        with subprocess.Popen(
            [sys.executable, "-c", FEEDER, str(path)], stdout=subprocess.PIPE, text=True
        ) as feeder:
            assert feeder.stdout is not None
            last = next(line for line in feeder.stdout if int(line) >= 100)
            feeder.kill()
            last = ([last, *feeder.stdout])[-1]
        with ps.IncrementalFlow(session, path=path) as flow:
            there = flow.source_info("orders").ordinal or 0
            print(
                f"the last tick that had returned when the process was killed: {int(last)}; the directory has {there}"
            )
            show(flow.snapshot("totals"))
            summary = flow.tick(
                "orders", [{"id": there + 1, "customer_id": 7, "amount": 10}], ordinal=there + 1
            )
            print(f"and goes on: tick {summary.tick}, {summary.duration_ms:.1f} ms with its sync to the disk")


def pipeline(session: ps.Session) -> None:
    """Draw the nodes of a pipeline, and run it to its end, as `penstock graph` and `penstock run` do."""
    with chdir(DATA.parents[1]):
        spec = load("examples/pipelines/top-stores.yaml", settings=session.settings)
        print(text(spec))
        started = time.perf_counter()
        run = PipelineRun(session, plan_pipeline(session, spec, runs=True))
        run.start()
        error = run.wait()
    if error is not None:
        raise error
    print(f"({time.perf_counter() - started:.1f} s; the same: penstock run {spec.path})")


def incremental(session: ps.Session) -> None:
    """Keep the ranking of customers up to date while orders arrive and are cancelled, and show what each change does."""
    orders = pq.read_table(DATA / "orders.parquet")
    flow = ps.IncrementalFlow(session)
    flow.register_source("orders", orders.schema)
    flow.register_view("totals", "SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY customer_id")
    flow.register_view("best", "SELECT * FROM totals ORDER BY total DESC LIMIT 3")
    flow.tick("orders", orders.slice(0, 4_900))
    show(flow.snapshot("best"))
    print(flow.explain("best"))
    watch = flow.watch_output("best")
    spent = []
    for begin in range(4_900, 5_000, 10):
        change = ps.DeltaBatch.inserts(orders.slice(begin, 10)) - ps.DeltaBatch.inserts(
            orders.slice(begin - 4_900, 5)
        )
        summary = flow.tick("orders", change)
        spent.append(summary.duration_ms)
        delta = watch.recv(timeout=0)
        rows = [] if delta is None else sorted(delta.to_pylist(), key=lambda row: row["_weight"])
        moved = "  ".join(f"{row['_weight']:+d} ({row['customer_id']}, {row['total']})" for row in rows)
        print(
            f"tick {summary.tick:>2}: {summary.rows_in} orders, {summary.views['totals'].inserted:>2} totals, "
            f"{summary.duration_ms:4.1f} ms   best: {moved or 'unchanged'}"
        )
    session.register_table("orders", orders)
    query = "SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY customer_id ORDER BY total DESC LIMIT 3"
    session.sql(query).collect()
    asked = time.perf_counter()
    session.sql(query).collect()
    again = (time.perf_counter() - asked) * 1_000
    print(f"(a change took about {statistics.median(spent):.1f} ms; asking Spark again takes {again:.0f} ms)")


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m• {text}\033[0m" if sys.stdout.isatty() else f"\n• {text}", flush=True)


def show(table: pa.Table) -> None:
    """Print an Arrow table, aligned."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for field in table.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)
        shown.add_column(field.name, justify="right" if number else "left")
    for row in table.to_pylist():
        shown.add_row(*(str(value) for value in row.values()))
    Console().print(shown)


if __name__ == "__main__":
    main()
