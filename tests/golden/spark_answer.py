"""Spark's own answer to a golden case, after every tick.

For each prefix of the ticks the tables are plain temporary views of Spark over the rows that are there then, and the query
runs as a batch query. A query that fails is an answer too: the tick does not count, and the next one starts from the
tables before it.

The answers to all ticks of a case are one query, a union of the query over each state of the tables; Spark plans each part by
itself. Where the order of rows counts, and where a part fails, every tick is a query of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from . import canonical, multiset
from .case import Area, Case, table
from .recording import MISSING_ROW, Answer, Answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Small queries are planned and run more quickly so, and have the same answers.
QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
# Code that is generated for a query takes longer to compile than to run over a few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false"}
_SIZED = re.compile(r"\b(?:VAR)?CHAR\s*\(", re.IGNORECASE)
_STATE = "_state"


def ask(spark: SparkSession, area: Area, case: Case) -> Answers:
    """Ask Spark for the answers to one case."""
    with settings(spark, {**INTERPRETED, **area.conf}), _Tables(spark, area) as tables:
        return _ask(tables, case)


def ask_all(spark: SparkSession, area: Area) -> dict[str, Answers]:
    """Ask Spark for the answers to all cases of an area, by name."""
    with settings(spark, {**INTERPRETED, **area.conf}), _Tables(spark, area) as tables:
        return {case.name: _ask(tables, case) for case in area.cases}


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set what the answers depend on and what makes small queries quick, and set it back."""
    wanted = {"spark.sql.session.timeZone": "UTC", **QUICK, **conf}
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


class _Tables:
    """The tables of an area as Spark's temporary views, made once for every set of rows.

    Only a table of the catalog pads CHAR and checks lengths: such tables are written into a database for each state.
    """

    def __init__(self, spark: SparkSession, area: Area) -> None:
        self.spark = spark
        self.area = area
        self._sized = {name for name, ddl in area.tables.items() if _SIZED.search(ddl)}
        self._frames: dict[tuple[str, str], DataFrame] = {}
        self._databases: dict[str, str] = {}
        self._refused: dict[str, Exception] = {}

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.area.tables.keys() - self._sized:
            self.spark.catalog.dropTempView(name)
        if self._databases:
            self.spark.catalog.setCurrentDatabase("default")
        for name in self._databases.values():
            self.spark.sql(f"DROP DATABASE {name} CASCADE")

    def show(self, state: multiset.State) -> None:
        """Make the tables hold these rows, for the queries that are analysed next."""
        if self._sized:
            self._use(state)
        for name in self.area.tables.keys() - self._sized:
            rows = multiset.rows(state, name)
            key = (name, repr(rows))
            if key not in self._frames:
                self._frames[key] = self._frame(self.area.tables[name], table(rows, self.area.schema(name)))
            self._frames[key].createOrReplaceTempView(name)

    def _frame(self, ddl: str, rows: pa.Table) -> DataFrame:
        # Arrow tells neither a time without a zone from one in the session's, nor collations, nor NOT NULL.
        return self.spark.createDataFrame(rows, schema=ddl)

    def _use(self, state: multiset.State) -> None:
        """Make the database that holds these rows the current one; rows that Spark refuses are refused each time."""
        key = repr({name: state[name] for name in sorted(self._sized)})
        if key not in self._databases:
            self._databases[key] = database = f"golden_{len(self._databases)}"
            self.spark.sql(f"CREATE DATABASE {database}")
            try:
                for name in sorted(self._sized):
                    self._write(f"{database}.{name}", name, state)
            except Exception as error:
                self._refused[key] = error
        if key in self._refused:
            raise self._refused[key]
        self.spark.catalog.setCurrentDatabase(self._databases[key])

    def _write(self, path: str, name: str, state: multiset.State) -> None:
        self.spark.sql(f"CREATE TABLE {path} ({self.area.tables[name]}) USING parquet")
        rows = multiset.rows(state, name)
        if rows:
            self.spark.createDataFrame(table(rows, self.area.schema(name))).write.insertInto(path)


def _ask(tables: _Tables, case: Case) -> Answers:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not case.order:
        try:
            return _ask_together(tables, case)
        except (PySparkException, Py4JJavaError):
            pass  # one of its ticks fails: which one, and how, is asked tick by tick
    return _ask_one_by_one(tables, case)


def _ask_together(tables: _Tables, case: Case) -> Answers:
    """Answer all ticks with one query; it fails when a tick does."""
    from pyspark.sql import functions as F

    states = [multiset.start(tables.area.tables)]
    numbers: list[int | None] = [0]  # the state after each tick; None when the tick is refused
    for tick in case.ticks:
        try:
            after = multiset.apply(states[-1], tick)
        except multiset.MissingRow:
            numbers.append(None)
            continue
        if after != states[-1]:
            states.append(after)
        numbers.append(len(states) - 1)
    parts = []
    for number, state in enumerate(states):
        with _query(tables, case, state) as query:
            parts.append(query.select(F.lit(number).alias(_STATE), "*"))
    answers = list(_apart(reduce(lambda one, other: one.union(other), parts).toArrow(), len(states)))
    rows = [tuple(canonical.rows(answer)) for answer in answers]
    ticks = (Answer(error=MISSING_ROW) if number is None else Answer(rows[number]) for number in numbers)
    return Answers(canonical.schema(answers[0].schema), tuple(ticks))


def _apart(together: pa.Table, count: int) -> Iterator[pa.Table]:
    """Give the rows of each state of a union, without its number."""
    state, rows = together.column(0), together.select(range(1, together.num_columns))
    for number in range(count):
        yield rows.filter(pc.equal(state, number))


def _ask_one_by_one(tables: _Tables, case: Case) -> Answers:
    state = multiset.start(tables.area.tables)
    schema, first = _run(tables, case, state)
    assert first.error is None, f"{case.id} fails on empty tables: {first.error}"
    answers = [first]
    for tick in case.ticks:
        try:
            after = multiset.apply(state, tick)
        except multiset.MissingRow:
            answers.append(Answer(error=MISSING_ROW))
            continue
        if after == state:
            answers.append(_last(answers))
            continue
        _, answer = _run(tables, case, after)
        if answer.error is None:
            state = after
        answers.append(answer)
    return Answers(schema, tuple(answers))


def _last(answers: Sequence[Answer]) -> Answer:
    return next(answer for answer in reversed(answers) if answer.error is None)


def _run(tables: _Tables, case: Case, state: multiset.State) -> tuple[list[list[str]], Answer]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with _query(tables, case, state) as query:
            answer = query.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        return [], Answer(error=_condition(error))
    return canonical.schema(answer.schema), Answer(tuple(canonical.rows(answer, ordered=case.order)))


@contextmanager
def _query(tables: _Tables, case: Case, state: multiset.State) -> Iterator[DataFrame]:
    """Give the query of a case over a state of its tables, analysed."""
    spark = tables.spark
    try:
        tables.show(state)
        for name, text in case.views:
            spark.sql(text).createOrReplaceTempView(name)
        yield spark.sql(case.sql)
    finally:
        for name, _ in case.views:
            spark.catalog.dropTempView(name)


def _condition(error: Any) -> str:
    """Return the name of Spark's error condition, without what varies."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    if condition is None or condition.startswith("_LEGACY"):
        bracketed = re.search(r"\[([A-Z_0-9.]+)\]", str(error))
        assert bracketed is not None, str(error)
        condition = bracketed[1]
    assert condition not in {"PARSE_SYNTAX_ERROR", "UNRESOLVED_COLUMN.WITH_SUGGESTION"}, str(error)
    return str(condition)
