"""Golden cases as values: tables, ticks and queries of one area, read from YAML.

A file in `cases/` has `tables` (name -> DDL), `ticks` (a list; each maps tables to rows `[weight, value, ...]`), `cases`
(name, sql, and optionally `views`, `order`, `tolerance`) and, when an area needs it, `conf` for the Spark session.
A case may have ticks of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from penstock.data.schema import to_arrow_schema

HOME = Path(__file__).parent
CASES = HOME / "cases"
RECORDED = HOME / "recorded"

Row = tuple[Any, ...]
Change = tuple[int, Row]
Tick = Mapping[str, tuple[Change, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """One query; `views` are registered before it, in order. `order` says that the order of rows is part of the answer.

    `tolerance` names the columns that Spark computes by adding doubles, rounding each time: its last digits depend on the order
    in which it meets the rows (sums and averages of doubles and of large numbers, variances, covariances). All other columns
    are compared to the bit.
    """

    area: str
    name: str
    sql: str
    ticks: tuple[Tick, ...]
    views: tuple[tuple[str, str], ...] = ()
    order: bool = False
    tolerance: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.area}-{self.name}"


@dataclass(frozen=True, slots=True)
class Area:
    """The cases of one file, which share tables."""

    name: str
    tables: Mapping[str, str]
    conf: Mapping[str, str]
    cases: tuple[Case, ...]

    def schema(self, table: str) -> pa.Schema:
        return to_arrow_schema(self.tables[table])


def area_names() -> list[str]:
    """Return the names of all areas, sorted."""
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def load(name: str) -> Area:
    """Return one area; a table, column count or case name that does not fit is an error."""
    document = yaml.load((CASES / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    tables = document["tables"]
    shared = read_ticks(document.get("ticks", []), tables, name)
    cases = []
    for entry in document["cases"]:
        known = {"name", "sql", "views", "order", "tolerance", "ticks"}
        assert set(entry) <= known, f"{name}: unknown keys {set(entry) - known} in {entry}"
        ticks = read_ticks(entry["ticks"], tables, name) if "ticks" in entry else shared
        views = tuple((view, text.strip()) for view, text in entry.get("views", {}).items())
        cases.append(
            Case(
                area=name,
                name=entry["name"],
                sql=entry["sql"].strip(),
                ticks=ticks,
                views=views,
                order=entry.get("order", False),
                tolerance=tuple(entry.get("tolerance", ())),
            )
        )
    named = [case.name for case in cases]
    assert len(set(named)) == len(named), f"{name}: a case name is used twice"
    return Area(name, tables, document.get("conf", {}), tuple(cases))


def read_ticks(entries: list[Any], tables: Mapping[str, str], area: str) -> tuple[Tick, ...]:
    """Return ticks as they are written in a file, with the values that Arrow takes; `tables` has the DDL of each table."""
    kinds = {table: to_arrow_schema(ddl).types for table, ddl in tables.items()}
    return tuple(
        {name: tuple(_change(row, kinds[name], area) for row in rows) for name, rows in (tick or {}).items()}
        for tick in entries
    )


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as an Arrow table of the given schema."""
    columns = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def weighted(changes: tuple[Change, ...], schema: pa.Schema) -> pa.Table:
    """Return changes as an Arrow table with `_weight`, which `DeltaBatch.weighted` takes."""
    rows = table([row for _, row in changes], schema)
    return rows.append_column("_weight", pa.array([weight for weight, _ in changes], pa.int64()))


def _change(row: list[Any], kinds: list[pa.DataType], area: str) -> Change:
    assert len(row) == len(kinds) + 1, f"{area}: {row} needs a weight and {len(kinds)} values"
    return int(row[0]), tuple(_value(raw, kind) for raw, kind in zip(row[1:], kinds, strict=True))


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Return the Python value that Arrow takes for `kind`; YAML has no decimals, bytes, zones or structs."""
    t = pa.types
    if raw is None:
        return None
    if t.is_decimal(kind):
        return Decimal(str(raw))
    if t.is_floating(kind):
        return float(raw)
    if t.is_binary(kind):
        return bytes.fromhex(raw)
    if t.is_timestamp(kind):
        return _moment(raw)
    if t.is_date(kind):
        return raw if isinstance(raw, date) else date.fromisoformat(raw)
    if t.is_duration(kind):
        return timedelta(microseconds=raw)
    if t.is_map(kind):
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in raw.items()]
    if t.is_list(kind):
        return [_value(item, kind.value_type) for item in raw]
    if t.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {field.name: _value(item, field.type) for field, item in zip(fields, raw, strict=True)}
    return raw


def _moment(raw: Any) -> datetime:
    if isinstance(raw, datetime):
        return raw
    if isinstance(raw, date):
        return datetime(raw.year, raw.month, raw.day)
    return datetime.fromisoformat(raw)
