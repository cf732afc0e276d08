"""TPC-H: its tables, a stream of refreshes over them, and its 22 queries."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.data.schema import to_arrow_schema

from .case import HOME

FIXED = ("nation", "region")
# Shares of the rows of every other table that a refresh inserts, updates and deletes.
INSERTED, UPDATED, DELETED = 0.003, 0.002, 0.003
QUERIES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((HOME / "tpch").glob("q*.sql"))}


def ddl() -> dict[str, str]:
    """Return the schema of every table as DDL."""
    lines = (HOME / "tpch" / "tables.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", maxsplit=1) for line in lines if line)


def generate(folder: Path, scale: float) -> dict[str, pa.Table]:
    """Make the tables of a scale factor."""
    tool = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    command = [str(tool), "parquet", "-s", str(scale), f"--output-dir={folder}", "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    return {
        name: pq.read_table(folder / f"{name}.parquet").cast(to_arrow_schema(text))
        for name, text in ddl().items()
    }


@dataclass(frozen=True, slots=True)
class Refresh:
    """One tick: the change of every table (with `_weight`), and the tables after it."""

    changes: Mapping[str, pa.Table]
    tables: Mapping[str, pa.Table]


def refreshes(tables: Mapping[str, pa.Table], count: int, *, seed: int) -> Iterator[Refresh]:
    """Give the initial load, then refreshes with inserts of reserved rows, updates and deletes."""
    random = np.random.default_rng(seed)
    reserved: dict[str, pa.Table] = {}
    live: dict[str, pa.Table] = {}
    for name, table in tables.items():
        reserve = 0 if name in FIXED else max(1, round(table.num_rows * INSERTED)) * count
        order = pa.array(random.permutation(table.num_rows))
        shuffled = table.take(order)
        reserved[name], live[name] = shuffled.slice(0, reserve), shuffled.slice(reserve)
    yield Refresh({name: _weighted(table, 1) for name, table in live.items()}, dict(live))
    for number in range(count):
        changes = {}
        for name in tables:
            if name not in FIXED:
                changes[name], live[name] = _refresh(live[name], reserved[name], number, count, random)
        yield Refresh(changes, dict(live))


def _refresh(
    live: pa.Table, reserved: pa.Table, number: int, count: int, random: np.random.Generator
) -> tuple[pa.Table, pa.Table]:
    share = reserved.num_rows // count
    inserted = reserved.slice(number * share, share)
    touched = random.permutation(live.num_rows)
    updates, deletes = max(1, round(live.num_rows * UPDATED)), max(1, round(live.num_rows * DELETED))
    before = live.take(pa.array(touched[:updates]))
    deleted = live.take(pa.array(touched[updates : updates + deletes]))
    after = _altered(before, random)
    stay = live.take(pa.array(np.sort(touched[updates + deletes :])))
    parts = [(inserted, 1), (before, -1), (after, 1), (deleted, -1)]
    change = pa.concat_tables([_weighted(rows, weight) for rows, weight in parts])
    return change, pa.concat_tables([stay, after, inserted]).combine_chunks()


def _altered(rows: pa.Table, random: np.random.Generator) -> pa.Table:
    """Give each row another value in one kind of column: those that are no keys take the values of other rows."""
    names = [name for name in rows.column_names if not name.endswith(("key", "number"))]
    for name in random.choice(names, size=min(3, len(names)), replace=False):
        other = rows.column(name).take(pa.array(random.permutation(rows.num_rows)))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), other)
    return rows


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column("_weight", pa.array(np.full(rows.num_rows, weight, np.int64)))
