"""Types as columns, keys and results: one set of queries for every type, over tables that change in ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import penstock as ps
from golden import canonical
from penstock.data.rows import to_arrow as to_rows
from penstock.errors import PenstockError
from penstock.spark import errors
from penstock.spark.arrow import to_arrow

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    """A type with values, as literals of SQL and as users feed them; values are distinct unless a collation says otherwise."""

    name: str
    ddl: str
    literals: Sequence[str]
    fed: Sequence[Any]
    shown: str = "{}"  # how a key is shown of which a group may have several
    conf: Mapping[str, str] = field(default_factory=dict)
    stored: bool = False  # in a table of the catalog, which alone pads CHAR and checks lengths
    numeric: bool = False
    whole: bool = False  # all queries, not only the core of them
    extra: Mapping[str, str] = field(default_factory=dict)  # queries that only this type has

    def show(self, expression: str) -> str:
        return self.shown.format(expression)


# Columns of the tables: positions of values, or None for NULL; id and n are numbers.
TICKS: tuple[dict[str, tuple[list[Row], list[Row]]], ...] = (
    {
        "t": ([(1, 0, 1, 1), (2, 1, 1, 1), (3, 0, 0, 2), (4, None, 2, 2), (5, 2, None, 1), (6, 3, 0, 2)], []),
        "u": ([(1, 0), (2, 3), (3, None)], []),
        "z": ([(1, 0, 1), (2, None, 0), (3, 3, None)], []),
    },
    {
        "t": ([(7, 1, 3, 2), (8, 0, 2, 1), (9, None, None, 3)], [(2, 1, 1, 1), (4, None, 2, 2)]),
        "u": ([(4, 1), (5, 0)], [(1, 0)]),
        "z": ([(4, 2, 2)], [(2, None, 0)]),
    },
    {
        "t": ([], [(3, 0, 0, 2), (6, 3, 0, 2), (9, None, None, 3)]),
        "u": ([], [(2, 3), (3, None)]),
        "z": ([], [(3, 3, None)]),
    },
)
STATIC: tuple[Row, ...] = ((0, "zero"), (1, "one"), (None, "none"))


# Queries that are asked for every type; the others only where a type may behave in a way of its own.
CORE = frozenset(
    {
        "columns",
        "equal",
        "group",
        "left_join",
        "static_join",
        "first_rows",
        "distinct",
        "extremes",
        "counts",
        "partitions",
        "choice",
        "nested",
        "texts",
        "sums",
        "source_nested",
    }
)


def queries(kind: Kind) -> dict[str, str]:
    """The views: by name, the text of a query."""
    first, second = kind.literals[:2]
    k, v = kind.show("k"), kind.show("v")
    texts = {
        "columns": "SELECT id, k, v FROM t",
        "equal": "SELECT id FROM t WHERE k = v",
        "comparisons": f"SELECT id, k = {first} AS e, k <=> v AS s, k < v AS l, k >= v AS g, k IN ({first}, {second}) AS i, nullif(k, v) AS x FROM t WHERE k <> {second} OR v BETWEEN {first} AND {second}",
        "literals": f"SELECT id, {first} AS a, CASE WHEN n = 1 THEN {second} END AS b FROM t",
        "group": f"SELECT {k} AS k, count(*) AS c, sum(n) AS s FROM t GROUP BY k",
        "rollup": f"SELECT {k} AS k, n, count(*) AS c FROM t GROUP BY ROLLUP(k, n)",
        "group_struct": "SELECT count(*) AS c FROM t GROUP BY struct(k, n), array(v)",
        "left_join": "SELECT t.id, u.id AS other, u.k FROM t LEFT JOIN u ON t.k = u.k AND t.id > u.id",
        "null_safe_join": "SELECT t.id, u.id AS other, t.k FROM t JOIN u ON t.k <=> u.k",
        "semi_join": "SELECT id, v FROM t WHERE k IN (SELECT k FROM u)",
        "anti_join": "SELECT id, v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
        "not_in": "SELECT id FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
        "static_join": "SELECT t.id, d.label, d.k FROM t JOIN d ON t.k = d.k",
        "order": "SELECT id, k FROM t ORDER BY k, id",
        "first_rows": "SELECT id, k, v FROM t ORDER BY k DESC, id LIMIT 3",
        "first_by_id": "SELECT id, k, v FROM t ORDER BY n, id LIMIT 4",
        "distinct": f"SELECT {k} AS k FROM (SELECT DISTINCT k FROM t)",
        "union": f"SELECT {k} AS k FROM (SELECT k FROM t UNION SELECT k FROM u)",
        "union_all": "SELECT k FROM t UNION ALL SELECT k FROM u",
        "except_all": f"SELECT {k} AS k FROM (SELECT k FROM t EXCEPT ALL SELECT k FROM u)",
        "intersect": f"SELECT {k} AS k FROM (SELECT k FROM t INTERSECT SELECT k FROM u)",
        "extremes": f"SELECT n, {kind.show('min(k)')} AS lo, {kind.show('max(k)')} AS hi FROM t GROUP BY n",
        "extreme_rows": f"SELECT n, min_by({k}, struct(k, id)) AS a, max_by(k, id) AS b FROM t GROUP BY n",
        "counts": "SELECT n, count(k) AS c, count(DISTINCT k) AS d FROM t GROUP BY n",
        "lists": f"SELECT n, sort_array(collect_list({k})) AS l, size(collect_set(k)) AS s FROM t GROUP BY n",
        "list": "SELECT collect_list(k) AS l FROM t WHERE id = 1",
        "partitions": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS r, count(*) OVER (PARTITION BY k) AS c FROM t",
        "ranks": "SELECT id, rank() OVER (ORDER BY k) AS r, dense_rank() OVER (PARTITION BY n ORDER BY k DESC) AS d FROM t",
        "neighbours": "SELECT id, lag(k) OVER (ORDER BY id) AS p, first_value(k) OVER (PARTITION BY n ORDER BY id) AS f FROM t",
        "running": f"SELECT id, {kind.show('max(k) OVER (PARTITION BY n ORDER BY id)')} AS m FROM t",
        "first_of_key": "SELECT id, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS r FROM t) WHERE r = 1",
        "choice": "SELECT id, CASE WHEN n > 1 THEN k ELSE v END AS c, coalesce(k, v) AS o, if(n = 1, v, k) AS i FROM t",
        "least": f"SELECT id, {kind.show('least(k, v)')} AS l, {kind.show('greatest(k, v)')} AS g FROM t",
        "nested": "SELECT id, array(k, v) AS a, named_struct('x', k, 'y', n) AS s, map(id, k) AS m, array(k, v)[1] AS i FROM t",
        "exploded": f"SELECT {kind.show('x')} AS x, count(*) AS c FROM t LATERAL VIEW explode(array(k, v)) e AS x GROUP BY x",
        "texts": f"SELECT id, CAST(k AS STRING) AS s, CAST(CAST(v AS STRING) AS {kind.ddl}) AS b FROM t",
        "hash": "SELECT id, hash(k) AS h FROM t",
        "scalar": "SELECT id FROM t WHERE k = (SELECT max(k) FROM u)",
        "correlated": "SELECT id, (SELECT max(u.id) FROM u WHERE u.k = t.k) AS c FROM t",
        "view_on_view": f"SELECT {k} AS k, count(*) AS c FROM `columns` WHERE v IS NOT NULL GROUP BY k",
        "view_on_nested": "SELECT id, s.x AS x, a[0] AS a, m[id] AS m FROM nested",
        "source_nested": "SELECT id, a, s, m, a[0] AS i, s.x AS x, m[id] AS e FROM z",
        "source_exploded": "SELECT id, x FROM z LATERAL VIEW explode(a) e AS x",
        "source_group": f"SELECT {kind.show('max(s.x)')} AS x, count(*) AS c FROM z GROUP BY s.x",
    }
    if kind.shown != "{}":
        texts["shown"] = f"SELECT id, {v} AS v FROM t"
    if kind.numeric:
        texts |= {
            "sums": "SELECT n, sum(k) AS s, avg(k) AS a, try_sum(v) AS t, try_avg(v) AS u FROM t GROUP BY n",
            "running_sum": "SELECT id, sum(k) OVER (PARTITION BY n ORDER BY id) AS s FROM t",
            "arithmetic": "SELECT id, k + v AS a, k - v AS s, -k AS m, abs(k) AS b, k * 2 AS d, k / 2 AS h FROM t",
            "moved": "SELECT id, timestamp'2024-02-29 12:00:00' + k AS t, timestamp_ntz'2024-01-31 00:00:00' - v AS m FROM t",
        }
    texts = {name: text for name, text in texts.items() if kind.whole or name in CORE}
    return texts | dict(kind.extra)


@dataclass(frozen=True)
class Outcome:
    """Rows in canonical form with their schema, or the error class of Spark."""

    rows: Any = None
    condition: str | None = None


class Tables:
    """The tables of a type in Spark."""

    def __init__(self, spark: SparkSession, kind: Kind) -> None:
        self._spark, self._kind = spark, kind
        self._count = 0
        self.made: list[str] = []

    def schema(self, name: str) -> str:
        ddl = self._kind.ddl
        return {
            "t": f"id INT, k {ddl}, v {ddl}, n INT",
            "u": f"id INT, k {ddl}",
            "z": f"id INT, a ARRAY<{ddl}>, s STRUCT<x: {ddl}, y: INT>, m MAP<INT, {ddl}>",
            "d": f"k {ddl}, label STRING",
        }[name]

    def show(self, name: str, rows: Sequence[Row]) -> None:
        """Make a table of Spark hold these rows."""
        text = self._select(name, rows)
        if not self._kind.stored:
            self._spark.sql(text).createOrReplaceTempView(name)
            return
        self._count += 1
        table = f"typed_{self._kind.name}_{name}_{self._count}"
        self._spark.sql(f"DROP TABLE IF EXISTS {table}")
        self._spark.sql(f"CREATE TABLE {table} ({self.schema(name)}) USING parquet")
        self.made.append(table)
        if rows:
            self._spark.sql(f"INSERT INTO {table} {text}")
        self._spark.table(table).createOrReplaceTempView(name)

    def drop(self) -> None:
        for name in ("t", "u", "z", "d", *queries(self._kind)):
            self._spark.catalog.dropTempView(name)
        for table in self.made:
            self._spark.sql(f"DROP TABLE IF EXISTS {table}")

    def _select(self, name: str, rows: Sequence[Row]) -> str:
        names = {"t": "id, k, v, n", "u": "id, k", "z": "id, a, s, m", "d": "k, label"}[name]
        texts = [f"({self._row(name, row)})" for row in rows] or [f"({self._row(name, (None,) * 4)})"]
        selected = f"SELECT * FROM VALUES {', '.join(texts)} AS rows({names})"
        return selected if rows else f"{selected} WHERE false"

    def _row(self, name: str, row: Row) -> str:
        ddl = self._kind.ddl

        def value(position: int | None) -> str:
            literal = "NULL" if position is None else self._kind.literals[position]
            return literal if self._kind.stored and position is not None else f"CAST({literal} AS {ddl})"

        if name == "d":
            return f"{value(row[0])}, {_text(row[1])}"
        ident = f"CAST({'NULL' if row[0] is None else row[0]} AS INT)"
        if name == "t":
            return f"{ident}, {value(row[1])}, {value(row[2])}, CAST({'NULL' if row[3] is None else row[3]} AS INT)"
        if name == "u":
            return f"{ident}, {value(row[1])}"
        if row[2] is None:
            return f"{ident}, NULL, NULL, NULL"
        struct = f"named_struct('x', {value(row[1])}, 'y', {ident})"
        return f"{ident}, array({value(row[1])}, {value(row[2])}), {struct}, map({ident}, {value(row[2])})"


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else f"'{value}'"


def fed_row(kind: Kind, name: str, row: Row) -> dict[str, Any]:
    """A row as a user feeds it."""

    def value(position: int | None) -> Any:
        return None if position is None else kind.fed[position]

    if name == "t":
        return {"id": row[0], "k": value(row[1]), "v": value(row[2]), "n": row[3]}
    if name == "u":
        return {"id": row[0], "k": value(row[1])}
    if row[2] is None:
        return {"id": row[0], "a": None, "s": None, "m": None}
    return {
        "id": row[0],
        "a": [value(row[1]), value(row[2])],
        "s": {"x": value(row[1]), "y": row[0]},
        "m": [(row[0], value(row[2]))],
    }


def fed_rows(kind: Kind, name: str, rows: Sequence[Row]) -> Any:
    """Rows as a user feeds them; Arrow must be told that a map is one."""
    dicts = [fed_row(kind, name, row) for row in rows]
    if name != "z":
        return dicts
    maps = [row.pop("m") for row in dicts]
    item = pa.array([value for entries in maps if entries for _, value in entries]).type
    return to_rows(dicts).append_column("m", pa.array(maps, pa.map_(pa.int32(), item)))


def states() -> list[dict[str, list[Row]]]:
    """The rows of every table after each tick."""
    tables: dict[str, list[Row]] = {"t": [], "u": [], "z": []}
    after = []
    for tick in TICKS:
        tables = {
            name: [row for row in rows if row not in tick[name][1]] + tick[name][0]
            for name, rows in tables.items()
        }
        after.append(tables)
    return after


def answers(
    spark: SparkSession, tables: Tables, kind: Kind, state: Mapping[str, list[Row]]
) -> dict[str, Outcome]:
    """Spark's own answers over one state of the tables."""
    for name, rows in state.items():
        tables.show(name, rows)
    found = {}
    for name, text in queries(kind).items():
        try:
            frame = spark.sql(text)
            frame.createOrReplaceTempView(name)
            answer = to_arrow(frame)
        except Exception as error:
            refusal = errors.translate(error)
            found[name] = Outcome(condition=refusal.condition or f"{refusal.code}: {refusal.message}")
        else:
            found[name] = Outcome(outcome(answer, ordered=" ORDER BY k, id" in text))
    return found


def outcome(table: Any, *, ordered: bool) -> Any:
    """A result to compare: names and types, and rows."""
    return canonical.schema(table.schema), canonical.through_json(canonical.rows(table, ordered=ordered))


class Views:
    """The same queries as views of a flow."""

    def __init__(self, session: ps.Session, kind: Kind, schema: Any) -> None:
        self.kind = kind
        self.flow = ps.IncrementalFlow(session)
        for name in TICKS[0]:
            self.flow.register_source(name, schema(name))
        self.refused: dict[str, str] = {}
        self.tiers: dict[str, Any] = {}
        for name, text in queries(kind).items():
            try:
                self.tiers[name] = self.flow.register_view(name, text)
            except PenstockError as error:
                self.refused[name] = error.condition or f"{error.code}: {error.message}"

    def tick(self, tick: Mapping[str, tuple[list[Row], list[Row]]]) -> None:
        for name, (inserted, deleted) in tick.items():
            for rows, make in ((deleted, ps.DeltaBatch.deletes), (inserted, ps.DeltaBatch.inserts)):
                if rows:
                    self.flow.feed(name, make(fed_rows(self.kind, name, rows)))
        self.flow.step()

    def answers(self) -> dict[str, Outcome]:
        found = {}
        for name, text in queries(self.kind).items():
            if name in self.refused:
                found[name] = Outcome(condition=self.refused[name])
                continue
            found[name] = Outcome(outcome(self.flow.snapshot(name), ordered=" ORDER BY k, id" in text))
        return found


def differences(expected: Mapping[str, Outcome], got: Mapping[str, Outcome]) -> list[str]:
    """What a view answers otherwise than Spark does."""
    return [
        f"{name}: Spark {_short(expected[name])}, view {_short(got[name])}"
        for name in expected
        if expected[name] != got[name]
    ]


def _short(answer: Outcome) -> str:
    return answer.condition or str(answer.rows)[:600]
