"""The main job end to end on embedded defaults: `make demo` runs it."""

from __future__ import annotations

import time
from pathlib import Path

import penstock as ps

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


def main() -> None:
    """Ask three files one question, look at how Spark ran it, and stop a query that would not end."""
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

        say("a mistake")
        try:
            session.sql(f"SELECT contry FROM '{DATA}/stores.csv'")
        except ps.SqlError as error:
            print(error)
    say(f"done, in {time.perf_counter() - started:.1f} s; next: .venv/bin/penstock shell, or docs/tutorials")


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m• {text}\033[0m" if _colours() else f"\n• {text}", flush=True)


def show(table: object) -> None:
    """Print an Arrow table the way the command line does."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in table.column_names:  # type: ignore[attr-defined]
        shown.add_column(name)
    for row in table.to_pylist():  # type: ignore[attr-defined]
        shown.add_row(*(str(value) for value in row.values()))
    Console().print(shown)


def _colours() -> bool:
    import sys

    return sys.stdout.isatty()


if __name__ == "__main__":
    main()
