"""Spark's own answer to a golden case, after every tick.

For each prefix of the ticks the tables are plain temporary views of Spark over the rows that are there then, and the query
runs as a batch query. A query that fails is an answer too: the tick does not count, and the next one starts from the
tables before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import canonical, multiset
from .case import RECORDED, Area, Case, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
MISSING_ROW = "MISSING_ROW"
_SIZED = re.compile(r"\b(?:VAR)?CHAR\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer after one tick: rows, or the class of the error that the query ended with."""

    rows: tuple[canonical.Canonical, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one case: one before the first tick, then one per tick."""

    schema: list[list[str]]
    ticks: tuple[Answer, ...]


def ask(spark: SparkSession, area: Area, case: Case) -> Answers:
    """Ask Spark for the answers to one case."""
    with settings(spark, area.conf), _Tables(spark, area) as tables:
        return _ask(tables, case)


def ask_all(spark: SparkSession, area: Area) -> dict[str, Answers]:
    """Ask Spark for the answers to all cases of an area, by name."""
    with settings(spark, area.conf), _Tables(spark, area) as tables:
        return {case.name: _ask(tables, case) for case in area.cases}


def save(area: Area, answers: Mapping[str, Answers]) -> Path:
    """Write the answers of an area: a line for each tick, so that a change is easy to read."""
    lines = ["{"]
    for number, case in enumerate(area.cases):
        found = answers[case.name]
        lines.append(f" {_json(case.name)}: {{")
        lines.append(f'  "schema": {_json(found.schema)},')
        lines.append('  "ticks": [')
        ticks = [_json({"error": tick.error} if tick.error else tick.rows) for tick in found.ticks]
        # A tick that changes nothing is written as such, which keeps the files small.
        ticks = ['"="' if index and tick == ticks[index - 1] else tick for index, tick in enumerate(ticks)]
        lines.append(",\n".join(f"   {tick}" for tick in ticks))
        lines.append("  ]")
        lines.append(" }" if number == len(area.cases) - 1 else " },")
    lines.append("}")
    path = RECORDED / f"{area.name}.json"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def recorded(area: str) -> dict[str, Answers]:
    """Read the recorded answers of an area, by case."""
    document = json.loads((RECORDED / f"{area}.json").read_text(encoding="utf-8"))
    return {name: Answers(entry["schema"], tuple(_ticks(entry["ticks"]))) for name, entry in document.items()}


def code(error: str) -> str:
    """Return the code that a batch query gives to an error of a recording; a view must give the same."""
    from penstock.spark.errors.cause import Fault
    from penstock.spark.errors.condition import BY_CONDITION
    from penstock.spark.errors.wording import Question

    if error == MISSING_ROW:
        return "DATA_MISSING_ROW"
    make = BY_CONDITION.get(error) or BY_CONDITION[error.partition(".")[0]]
    return make(Fault("", "as recorded", error), Question()).code


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
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _ticks(entries: list[Any]) -> Iterator[Answer]:
    last = Answer()
    for entry in entries:
        if entry != "=":
            last = (
                Answer(error=entry["error"])
                if isinstance(entry, dict)
                else Answer(tuple(_row(row) for row in entry))
            )
        yield last


def _row(row: list[Any]) -> canonical.Canonical:
    return tuple(row)


class _Tables:
    """The tables of an area as Spark's temporary views, made once for every set of rows."""

    def __init__(self, spark: SparkSession, area: Area) -> None:
        self.spark = spark
        self.area = area
        self._frames: dict[tuple[str, str], Any] = {}
        self._real: set[str] = set()

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.area.tables:
            if name in self._real:
                self.spark.sql(f"DROP TABLE IF EXISTS {name}")
            else:
                self.spark.catalog.dropTempView(name)

    def show(self, state: multiset.State) -> None:
        """Make the tables hold these rows."""
        for name, ddl in self.area.tables.items():
            rows = multiset.rows(state, name)
            if _SIZED.search(ddl):
                self._real.add(name)
                self._write(name, ddl, rows)
                continue
            key = (name, repr(rows))
            if key not in self._frames:
                self._frames[key] = self._frame(ddl, table(rows, self.area.schema(name)))
            self._frames[key].createOrReplaceTempView(name)

    def _frame(self, ddl: str, rows: Any) -> Any:
        # Arrow tells neither a time without a zone from one in the session's, nor collations, nor NOT NULL.
        from pyspark.sql.types import StructType

        return self.spark.createDataFrame(rows, schema=StructType.fromDDL(ddl))

    def _write(self, name: str, ddl: str, rows: Any) -> None:
        """Only a table of the catalog pads CHAR and checks lengths."""
        self.spark.sql(f"DROP TABLE IF EXISTS {name}")
        self.spark.sql(f"CREATE TABLE {name} ({ddl}) USING parquet")
        if rows:
            self.spark.createDataFrame(table(rows, self.area.schema(name))).write.insertInto(name)


def _ask(tables: _Tables, case: Case) -> Answers:
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
            answers.append(next(answer for answer in reversed(answers) if answer.error is None))
            continue
        _, answer = _run(tables, case, after)
        if answer.error is None:
            state = after
        answers.append(answer)
    return Answers(schema, tuple(answers))


def _run(tables: _Tables, case: Case, state: multiset.State) -> tuple[list[list[str]], Answer]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    spark = tables.spark
    try:
        tables.show(state)
        for name, text in case.views:
            spark.sql(text).createOrReplaceTempView(name)
        found = spark.sql(case.sql).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        return [], Answer(error=_condition(error))
    finally:
        for name, _ in case.views:
            spark.catalog.dropTempView(name)
    return canonical.schema(found.schema), Answer(tuple(canonical.rows(found, ordered=case.order)))


def _condition(error: Any) -> str:
    """Return the name of Spark's error condition, without what varies."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    if condition is None or condition.startswith("_LEGACY"):
        found = re.search(r"\[([A-Z_0-9.]+)\]", str(error))
        assert found is not None, str(error)
        condition = found[1]
    assert condition not in {"PARSE_SYNTAX_ERROR", "UNRESOLVED_COLUMN.WITH_SUGGESTION"}, str(error)
    return str(condition)
