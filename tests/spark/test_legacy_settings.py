"""Views under settings that change what a function gives: the answer is that of a batch query under the same setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

import penstock as ps
from golden import canonical

DDL = "g INT, n INT, x DOUBLE, s STRING, d DATE, ts TIMESTAMP, a ARRAY<INT>"
_CATALYST = "org.apache.spark.sql.catalyst.optimizer."
_NEEDED = ("RewriteLateralSubquery", "PullupCorrelatedPredicates", "RewritePredicateSubquery")
_TIMES = (
    "date_format(ts, 'u yyyy-MM-dd')",
    "to_timestamp(concat(n, '/2/2023 1:2'), 'dd/MM/yyyy HH:mm')",
    "unix_timestamp(concat(n, '/2/2023'), 'dd/MM/yyyy')",
    "from_unixtime(n, 'yyyy-MM-dd')",
)
# Setting, value, and columns that it changes or may change.
CASES = [
    (
        "spark.sql.legacy.percentileDiscCalculation",
        "true",
        ["percentile_disc(0.7) WITHIN GROUP (ORDER BY n)"],
    ),
    (
        "spark.sql.legacy.statisticalAggregate",
        "true",
        ["stddev_samp(x)", "var_samp(n)", "skewness(x)", "kurtosis(n)", "covar_samp(x, n)", "corr(x, n)"],
    ),
    ("spark.sql.legacy.sizeOfNull", "true", ["max(size(a))"]),
    ("spark.sql.legacy.castComplexTypesToString.enabled", "true", ["min(CAST(struct(n, s, a) AS STRING))"]),
    ("spark.sql.legacy.truncateForEmptyRegexSplit", "true", ["min(concat_ws('|', split(s, '')))"]),
    ("spark.sql.legacy.truncateForEmptyRegexSplit", "true", ["min(concat_ws('|', split(s, '', 2)))"]),
    ("spark.sql.icu.caseMappings.enabled", "false", ["min(upper(s))", "min(lower(s))", "min(initcap(s))"]),
    ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", ["min(map(n, 1, n, 2)[n])", "min(map(n % 2, n, 0, 9)[0])"]),
    ("spark.sql.legacy.followThreeValuedLogicInArrayExists", "false", ["bool_and(exists(a, y -> y > 5))"]),
    ("spark.sql.legacy.negativeIndexInArrayInsert", "true", ["min(element_at(array_insert(a, -1, 7), -1))"]),
    ("spark.sql.legacy.timeParserPolicy", "EXCEPTION", ["min(date_format(ts, 'yyyy-MM-dd'))"]),
    *(("spark.sql.legacy.timeParserPolicy", "LEGACY", [f"min({column})"]) for column in _TIMES),
    (
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "false",
        [
            "sum(CAST(n AS DECIMAL(38, 10)) * CAST(1.5 AS DECIMAL(20, 10)))",
            "min(CAST(n AS DECIMAL(38, 6)) / 3.0)",
        ],
    ),
    ("spark.sql.legacy.integerGroupingId", "true", ["grouping_id()"]),
    ("spark.sql.ansi.enabled", "false", ["sum(n / 0)", "min(int(s))", "max(n + 2147483647)", "min(a[9])"]),
    (
        "spark.sql.timestampType",
        "TIMESTAMP_NTZ",
        ["max(timestamp '2024-01-01 00:00:00')", "min(CAST(d AS TIMESTAMP))"],
    ),
    (
        "spark.sql.session.timeZone",
        "Asia/Kolkata",
        ["min(hour(ts))", "max(CAST(ts AS DATE))", "min(CAST(ts AS STRING))"],
    ),
]
ROWS = [
    (1, 1, 1.5, "aß", "2024-01-31", "2024-01-31 20:00:00", [1, None]),
    (1, 2, 2.5, "ǆIi", "2024-02-29", "2024-02-29 01:00:00", None),
    (1, 3, 2.0, "ὈΔΥΣΣΕΎΣ", "2023-02-28", "2023-02-28 12:30:00", [7, 8]),
    (2, 4, 4.5, "x", "2022-01-01", "2022-01-01 00:00:00", []),
    (1, 5, 7.0, None, None, None, [1, 2, 3]),
]


@pytest.fixture
def setting(session: ps.Session, request: pytest.FixtureRequest) -> Iterator[None]:
    """The setting of a case, for the session, and what it was before afterwards."""
    name, value = request.param
    before = session.spark.conf.get(name, None)
    session.spark.conf.set(name, value)
    yield
    if before is None:
        session.spark.conf.unset(name)
    else:
        session.spark.conf.set(name, before)


def _table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    dates = [
        pa.array(columns[4]).cast(pa.date32()),
        pa.array(columns[5]).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
    ]
    plain = [
        pa.array(columns[0], pa.int32()),
        pa.array(columns[1], pa.int32()),
        pa.array(columns[2], pa.float64()),
        pa.array(columns[3]),
    ]
    return pa.table(
        [*plain, *dates, pa.array(columns[6], pa.list_(pa.int32()))], ["g", "n", "x", "s", "d", "ts", "a"]
    )


def _check(session: ps.Session, query: str) -> None:
    """After each of three ticks, one of which takes a row back, the view and the batch query give the same rows, or the same error."""
    flow = ps.IncrementalFlow(session)
    flow.register_source("settled", DDL)
    flow.register_view("v", query)
    whole, gone = _table(ROWS), _table(ROWS[1:2])
    deltas = [(whole.slice(0, 3), 1), (whole.slice(3), 1), (gone, -1)]
    states = [whole.slice(0, 3), whole, pa.concat_tables([whole.slice(0, 1), whole.slice(2)])]
    for (delta, weight), state in zip(deltas, states, strict=True):
        session.spark.createDataFrame(state, schema=DDL).createOrReplaceTempView("settled")
        weights = pa.array([weight] * delta.num_rows, pa.int64())
        flow.tick("settled", ps.DeltaBatch.weighted(delta.append_column("_weight", weights)))
        wanted = session.spark.sql(query).toArrow()
        got = flow.snapshot("v")
        assert canonical.schema(got.schema) == canonical.schema(wanted.schema)
        assert canonical.rows(got) == canonical.rows(wanted)


@pytest.mark.parametrize(
    ("setting", "columns"),
    [
        pytest.param((name, value), columns, id=f"{name}={value}: {columns[0]}")
        for name, value, columns in CASES
    ],
    indirect=["setting"],
)
@pytest.mark.usefixtures("setting")
def test_a_view_gives_what_a_batch_query_gives_under_the_setting(
    session: ps.Session, columns: list[str]
) -> None:
    shown = ", ".join(f"{column} AS c{index}" for index, column in enumerate(columns))
    grouping = "CUBE(g)" if columns == ["grouping_id()"] else "g"
    _check(session, f"SELECT g, {shown} FROM settled GROUP BY {grouping}")


@pytest.mark.parametrize(
    "setting",
    [("spark.sql.optimizer.excludedRules", ",".join(_CATALYST + rule for rule in _NEEDED))],
    indirect=True,
)
@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT n, c FROM settled, LATERAL (SELECT count(*) AS c FROM settled u WHERE u.g = settled.g)",
        "SELECT n FROM settled WHERE EXISTS (SELECT 1 FROM settled u WHERE u.n = settled.n + 1)",
        "SELECT n, (SELECT max(u.n) FROM settled u WHERE u.g = settled.g) AS m FROM settled",
    ],
)
def test_rules_without_which_a_plan_is_not_whole_are_never_left_out(session: ps.Session, query: str) -> None:
    _check(session, query)
