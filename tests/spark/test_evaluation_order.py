"""What Spark evaluates for a row, and what it does not: random expressions that raise, and queries over them, against Spark's own answer."""

from __future__ import annotations

from itertools import islice, permutations
from random import Random

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from golden import drive
from golden.generated_expressions import COLUMNS, changes, expression, query, row
from golden.spark_answer import settings
from penstock.plan import node
from seed import SEED
from sweep.call import Call, load
from sweep.kinds import KINDS, Kind
from twin.batch import COMPILED, Pair, spark_answer
from twin.judge import Judge, Table

TYPES = ["int", "double", "boolean", "string"]
DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
TABLES = {"t": DDL, "u": DDL}
NULLS = (None,) * len(COLUMNS)


def test_expression_raises_for_the_rows_for_which_spark_does(spark: SparkSession) -> None:
    random = Random(SEED)
    rows = _rows(random, 50)
    asked, wrong = 0, []
    with settings(spark, COMPILED):
        for _ in range(80):
            text = expression(random, random.choice(TYPES), depth=random.randint(1, 4))
            judge = _judge(spark, rows, text)
            if judge is not None:
                asked += 1
                wrong += [f"{text}\n  {difference}" for difference in judge.differences(0)[:1]]
    assert not wrong, f"seed {SEED}\n" + "\n".join(sorted(wrong, key=len)[:10])
    assert asked > 40


def _rows(random: Random, count: int) -> Table:
    rows = [row(random) for _ in range(count)]
    return {
        name: (kind.lower(), [values[index] for values in rows])
        for index, (name, (kind, _)) in enumerate(COLUMNS.items())
    }


def _judge(spark: SparkSession, rows: Table, *texts: str) -> Judge | None:
    """Both answers, unless Spark refuses an expression (a constant that raises) or a part of it is left to Spark."""
    try:
        judge = Judge(spark, rows, texts)
    except Exception:
        return None
    return judge if isinstance(judge.root, node.Project) and isinstance(judge.root.input, node.Scan) else None


@pytest.mark.parametrize("count", [50, pytest.param(None, marks=pytest.mark.soak)])
def test_argument_that_raises_behind_one_that_is_null(spark: SparkSession, count: int | None) -> None:
    """Functions of the kernel, some or all: one argument is NULL, another one raises, if it is evaluated."""
    functions = [
        [call for call in calls if len(call.kinds) > 1 and not call.shape]
        for _, calls in load(most=6, most_examples=3).values()
    ]
    functions = [calls for calls in functions if calls]
    if count is not None:
        functions = Random(SEED).sample(functions, count)
    asked, wrong = 0, []
    with settings(spark, COMPILED):
        for calls in functions:
            judges = (_with_null(spark, call) for call in calls)
            for judge, pairs in islice((one for one in judges if one is not None), 1 if count else 2):
                asked += len(pairs)
                for index, (null, raising) in enumerate(pairs):
                    theirs, ours = (judge.attempt(ask, index, null) for ask in (judge.spark, judge.kernel))
                    if isinstance(theirs, str) != isinstance(ours, str):
                        case = f"{calls[0]}: argument {null} is NULL, {raising} raises"
                        wrong.append(f"{case}: Spark {theirs}, kernel {ours}")
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong)
    assert asked > (50 if count else 1000)


def _with_null(spark: SparkSession, call: Call) -> tuple[Judge, list[tuple[int, int]]] | None:
    """The call in all ways in which one argument raises, over a row for each argument that is NULL; None when it is not the kernel's."""
    kinds = [KINDS.get(kind, Kind(kind, (None,))) for kind in call.kinds]
    names = [kind.made.format(f"c{place}") for place, kind in enumerate(kinds)]
    values = [next((value for value in kind.values if value is not None), None) for kind in kinds]
    places = range(len(kinds))
    rows: Table = {
        f"c{place}": (kind.type, [None if null == place else value for null in places])
        for place, (kind, value) in enumerate(zip(kinds, values, strict=True))
    } | {"z": ("int", [5 for _ in places])}
    pairs = list(permutations(places, 2))
    texts = [
        call.template.filled(
            [
                f"element_at(array({name}), z)" if place == raising else name
                for place, name in enumerate(names)
            ]
        )
        for _, raising in pairs
    ]
    judge = _judge(spark, rows, *texts)
    return None if judge is None else (judge, pairs)


def test_view_raises_in_the_ticks_in_which_spark_does(session: ps.Session) -> None:
    random = Random(SEED)
    with settings(session.spark, COMPILED):
        wrong = [text for text in (_difference(session, random, query(random)) for _ in range(30)) if text]
    assert not wrong, f"seed {SEED}\n" + "\n".join(sorted(wrong, key=len)[:5])


def _difference(session: ps.Session, random: Random, text: str) -> str | None:
    """Drive a view through random ticks, and return what differs from Spark's answer."""
    try:
        pair = Pair(session, text, TABLES)
    except Exception as error:
        # A constant part that every row reaches: Spark refuses it before it reads one.
        refused = spark_answer(session.spark, text, TABLES, {"t": [NULLS], "u": [NULLS]})
        return None if isinstance(refused, str) else f"{text}\n  refused: {error}"
    for number in range(6):
        tick = {name: tuple(changes(random, rows)) for name, rows in pair.held.items()}
        expected, answer = pair.step(tick)
        inserted = sum(weight > 0 for part in tick.values() for weight, _ in part)
        both_raise = isinstance(expected, str) and isinstance(answer, str)
        # Of several rows that raise, either may be the first; and so may one part of a row, where Spark computes another for the view.
        if expected != answer and not (both_raise and (inserted > 1 or pair.asks_spark)):
            return f"{text}\n  tick {number}: {tick}\n  Spark {expected}\n  view  {answer}"
    return None


ROWS = [
    (None, 0, None, 0.0, None, None, None),
    (None, 0, 1.5, None, True, "x", [4]),
    (1, 1, 0.0, -2.0, False, "7", [1, None, 3]),
]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nanvl(d, 1 / 0) AS p FROM t",
        "SELECT nanvl(d, d / j) AS p FROM t WHERE d IS NULL OR j = 1",
        "SELECT i + 1 / j AS p, i % j AS q, pmod(i, j) AS r, i div j AS s FROM t",
        "SELECT (i / i) / nullif(j, 0) AS p FROM t",
        "SELECT i IN (1, 1 div j) AS p FROM t",
        "SELECT i BETWEEN 1 div j AND 5 AS p FROM t",
        "SELECT concat(cast(i AS STRING), cast(1 div j AS STRING)) AS p FROM t",
        "SELECT substring(s, cast(i AS INT), 1 div j) AS p FROM t WHERE i IS NULL OR j = 1",
        "SELECT i + cast(raise_error('no') AS INT) AS p FROM t WHERE i IS NULL",
        "SELECT i + factorial(1 div j) AS p FROM t",
        "SELECT i, j FROM t WHERE i > 0 AND 1 div j > 0",
        "SELECT i, j FROM t WHERE i + j > 0 AND md5(cast(1 div j AS STRING)) > ''",
        "SELECT i, j FROM t WHERE elt(i, 'x', 'y') = 'x' AND 1 div j > 0",
        "SELECT t.i, u.j FROM t LEFT JOIN u ON t.j = u.j AND t.i IS NOT NULL AND 1 / t.e > 0",
        "SELECT count(*) FILTER (WHERE i > 0 AND 1 div j > 0) AS c FROM t",
        "SELECT sum(1 div j) FILTER (WHERE j <> 0) AS p FROM t",
        "SELECT count(i, 1 div j) AS c FROM t",
        "SELECT sum(factorial(1 div j)) FILTER (WHERE j <> 0) AS p, max(md5(s)) AS q FROM t",
        "SELECT coalesce(try_add(j, 1), 1 div j) AS p, try_divide(1, j) AS q, try_cast(s AS INT) AS r FROM t",
        "SELECT j, sum(i) / sum(j) AS p, factorial(sum(i) div sum(j)) AS q FROM t GROUP BY j HAVING sum(j) <> 0",
        "SELECT j, sum(i) / sum(j) AS p FROM t GROUP BY j HAVING sum(j) <> 0 AND sum(i) / sum(j) > 0",
        "SELECT j, CASE WHEN sum(j) > 0 THEN sum(i) / sum(j) END AS p FROM t GROUP BY j HAVING count(i) = 0 OR 1 div j > 0",
    ],
)
def test_argument_that_no_row_reaches_does_not_raise(session: ps.Session, text: str) -> None:
    with settings(session.spark, COMPILED):
        pair = Pair(session, text, TABLES)
        for tick in (
            {"t": tuple((1, values) for values in ROWS), "u": ((1, ROWS[0]),)},
            {"t": ((-1, ROWS[1]),)},
            {"t": ((1, ROWS[1]), (-1, ROWS[2]))},
        ):
            expected, answer = pair.step(tick)
            assert not isinstance(expected, str), f"Spark refuses the tick: {expected}"
            assert answer == expected


CONSTANTS = [
    "1 div 0",
    "2147483647 + 1",
    "cast('x' AS INT)",
    "cast(1e20D AS INT)",
    "element_at(array(1), 5)",
    "array(1)[3]",
    "cast(raise_error('no') AS INT)",
    "size(sequence(1, 5, -1))",
    "size(map_from_arrays(array(1), array(1, 2)))",
    "size(map(1, 1, 1, 2))",
    "year(make_date(2023, 13, 1))",
    "year(to_timestamp('x', 'yyyy'))",
    "year(cast('x' AS DATE))",
    "day(next_day(date'2023-01-01', 'x'))",
    "length(elt(5, 'a'))",
    "length(decode(x'ff', 'utf-8'))",
    "length(url_decode('%'))",
    "length(to_binary('x', 'hex'))",
    "cast(to_number('x', '9') AS INT)",
    "nvl2(assert_true(false), 1, 2)",
]
AROUND = [
    "if(i > 5, {0}, 0)",
    "CASE WHEN i > 5 THEN {0} + i END",
    "coalesce(j, {0})",
    "element_at(transform(array(j), x -> if(x > 5, {0}, x)), 1)",
    "sum(if(i > 5, {0}, i)) FILTER (WHERE j < 1)",
]


@pytest.mark.parametrize("around", AROUND)
def test_constant_that_raises_and_no_row_reaches(session: ps.Session, around: str) -> None:
    """The optimizer leaves such a constant where it stands; the first fill and some ticks have no rows at all."""
    columns = ", ".join(f"{around.format(constant)} AS p{index}" for index, constant in enumerate(CONSTANTS))
    with settings(session.spark, COMPILED):
        pair = Pair(session, f"SELECT {columns} FROM t", TABLES)
        for tick in (
            {"t": tuple((1, values) for values in ROWS)},
            {"t": tuple((-1, values) for values in ROWS[1:])},
            {"t": ((-1, ROWS[0]),)},
        ):
            expected, answer = pair.step(tick)
            assert not isinstance(expected, str), f"Spark refuses the tick: {expected}"
            assert answer == expected


def test_shared_argument_is_evaluated_behind_its_filter(session: ps.Session) -> None:
    """Spark raises here: it computes what AVG reads twice in front of the FILTER."""
    flow = drive.open_flow(session, TABLES)
    flow.register_view("v", "SELECT avg(1 div j) FILTER (WHERE j <> 0) AS p FROM t")
    flow.feed("t", [dict(zip(COLUMNS, values, strict=True)) for values in ROWS])
    flow.step()
    assert flow.snapshot("v").to_pylist() == [{"p": 1.0}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT try_add(1 div j, 1) AS p FROM t",
        "SELECT nanvl(d, 1 / j) AS p FROM t",
        "SELECT i <=> 1 div j AS p FROM t",
        "SELECT greatest(i, 1 div j) AS p FROM t",
        "SELECT array(i, 1 div j) AS p FROM t",
        "SELECT concat_ws('-', s, cast(1 div j AS STRING)) AS p FROM t",
        "SELECT i IS NULL AND 1 div j > 0 AS p FROM t",
    ],
)
def test_argument_that_a_row_reaches_raises(session: ps.Session, text: str) -> None:
    """The row has NULL and zero, and NaN."""
    with settings(session.spark, COMPILED):
        pair = Pair(session, text, TABLES)
        assert pair.step({"t": ((1, (2, 1, 1.5, 1.0, True, "7", [1])),)})[0] != "DATA_DIVIDE_BY_ZERO"
        bad = (None, 0, float("nan"), None, None, None, None)
        assert pair.step({"t": ((1, bad),)}) == ("DATA_DIVIDE_BY_ZERO", "DATA_DIVIDE_BY_ZERO")


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_the_condition_of_a_join_is_asked_for_rows_that_are_there(session: ps.Session, kind: str) -> None:
    columns = "t.k" if "SEMI" in kind or "ANTI" in kind else "t.k, t.x, u.y"
    text = f"SELECT {columns} FROM t {kind} u ON t.k = u.k AND 10 / u.y > t.x"
    pair = Pair(session, text, {"t": "k INT, x INT", "u": "k INT, y INT"})
    ticks: list[dict[str, tuple[tuple[int, tuple[int | None, ...]], ...]]] = [
        # A divisor of zero that no row meets, deleted before one comes.
        {"u": ((1, (1, 0)), (1, (1, 5)))},
        {"u": ((-1, (1, 0)),)},
        {"t": ((1, (1, 1)),)},
        # One that goes in the tick in which the first row meets it.
        {"u": ((1, (2, 0)), (1, (2, 2)))},
        {"t": ((1, (2, 3)),), "u": ((-1, (2, 0)),)},
        {"t": ((-1, (1, 1)),)},
    ]
    for number, tick in enumerate(ticks):
        expected, answer = pair.step(tick)
        assert answer == expected, number
        assert not isinstance(answer, str), number
