"""Regressions and correlations of columns with NaN, an infinity or one number in all rows, next to Spark's batch query."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from golden import canonical
from penstock import IncrementalFlow, Session

COLUMNS = ([1.0, 2.0, 4.0], [0.5, 0.5, 0.5], [1.0, float("nan"), 2.0], [1.0, float("inf"), 1.0])
FUNCTIONS = ("regr_slope", "regr_intercept", "regr_r2", "regr_sxy", "covar_pop", "covar_samp")


def test_a_column_without_spread_decides_before_one_with_nan(session: Session) -> None:
    pairs = list(enumerate(product(COLUMNS, repeat=2)))
    table = pa.table(
        {
            "g": [group for group, _ in pairs for _ in range(3)],
            "y": [value for _, (y, _) in pairs for value in y],
            "x": [value for _, (_, x) in pairs for value in x],
        }
    )
    query = f"SELECT g, {', '.join(f'{name}(y, x) AS {name}' for name in FUNCTIONS)} FROM t GROUP BY g"
    flow = IncrementalFlow(session)
    flow.register_source("t", "g BIGINT, y DOUBLE, x DOUBLE")
    assert flow.register_view("v", query).tier == "kernel"
    flow.tick("t", table)
    session.register_table("t", table)
    expected = canonical.rows(session.sql(query).toArrow())
    session.spark.catalog.dropTempView("t")
    assert canonical.close(canonical.rows(flow.snapshot("v")), expected, tuple(range(1, len(FUNCTIONS) + 1)))
