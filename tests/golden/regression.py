"""Generated cases that failed once, or that are kept for their shape, as JSON.

A file has the tables as DDL, the query, and ticks as in `cases/`. A test that finds a failure writes its smallest form to `regressions/failed.json`. Give it a name and commit it.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from .case import HOME, Area, Case, Tick, read_ticks

REGRESSIONS = HOME / "regressions"
FAILED = REGRESSIONS / "failed.json"


def regressions() -> list[Path]:
    """Return the files of all kept cases."""
    return sorted(REGRESSIONS.glob("*.json"))


def load(path: Path) -> Area:
    """Read one case, as the only one of an area."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return area(
        document["tables"], document["query"], read_ticks(document["ticks"], document["tables"], path.stem)
    )


def area(tables: dict[str, str], query: str, ticks: tuple[Tick, ...]) -> Area:
    """Return a generated case as the only one of an area."""
    # This rule makes Spark itself lose the ORDER BY of a limit below a correlated subquery.
    rule = "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset"
    case = Case("generated", "view", query, ticks)
    return Area("generated", tables, {"spark.sql.optimizer.excludedRules": rule}, (case,))


def text(generated: Area) -> str:
    """Return a case as JSON, one line for each tick."""
    (case,) = generated.cases
    ticks = ",\n".join(f"  {json.dumps(_tick(tick), ensure_ascii=False)}" for tick in case.ticks)
    tables, query = (json.dumps(part, ensure_ascii=False) for part in (generated.tables, case.sql))
    return f'{{\n "tables": {tables},\n "query": {query},\n "ticks": [\n{ticks}\n ]\n}}\n'


def keep(generated: Area) -> None:
    """Write a case that failed; a later call replaces it, so that the smallest one stays."""
    REGRESSIONS.mkdir(exist_ok=True)
    FAILED.write_text(text(generated), encoding="utf-8")


def _tick(tick: Tick) -> dict[str, list[list[Any]]]:
    return {name: [[weight, *map(_raw, row)] for weight, row in changes] for name, changes in tick.items()}


def _raw(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date | datetime) else value
