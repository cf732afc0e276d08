"""The rows of a table as a stream that ends: ranges of the key, read side by side in one consistent snapshot.

The ranges are fixed at the first start and stand in the offset, so that an epoch that comes again has the same
ranges. It has the rows of another moment then: a snapshot ends with the session that took it. Where changes follow
the snapshot, rows that they bring are left out of the second one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.data.operation import INSERT, OPERATION
from penstock.sources.postgres import client
from penstock.sources.postgres.copy import read_rows
from penstock.sources.postgres.ranges import Bound, find_bounds, range_condition
from penstock.sources.postgres.table import Table
from penstock.sources.postgres.value import SpecialValues
from penstock.sources.postgres.visibility import XIDS, Visibility

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

Offset = dict[str, Any]
START: Offset = {"phase": "start"}
DONE = "done"


@dataclass(frozen=True, slots=True)
class TableReading:
    """What is read and from where; it travels to Spark's Python processes."""

    url: str = field(repr=False)
    table: Table
    specials: SpecialValues = "fail"
    condition: str | None = None
    partitions: int | None = None
    seconds: float = 300.0
    """How long a server may be away."""
    operation: bool = False
    """Whether rows say that they are inserts."""

    @property
    def where(self) -> str:
        """The table and its place, for errors."""
        return f"postgres table {self.table.display} in {client.location(self.url)}"

    def to_text(self) -> str:
        """All but the address, which is a secret and travels apart."""
        values = {
            name: getattr(self, name) for name in TableReading.__slots__ if name not in ("url", "table")
        }
        return json.dumps({**values, "table": self.table.to_json()})

    @classmethod
    def from_text(cls, url: str, text: str) -> TableReading:
        """The reading of `to_text`."""
        values = json.loads(text)
        return cls(**{**values, "url": url, "table": Table.from_json(values["table"])})


class SharedSnapshot:
    """A snapshot that a session holds open, so that others can read in it."""

    def __init__(self, connection: psycopg.Connection) -> None:
        """Take it; the connection is the snapshot's from here on."""
        self._connection = connection
        with ExitStack() as failed:
            failed.callback(connection.close)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self.name = str(_value(connection, "SELECT pg_export_snapshot()"))
            failed.pop_all()

    def visible(self) -> str:
        """Which transactions it sees, as `pg_current_snapshot` says it."""
        return str(_value(self._connection, "SELECT pg_current_snapshot()::text"))

    @property
    def is_open(self) -> bool:
        """Whether others can still read in it."""
        return not self._connection.closed

    def close(self) -> None:
        """End it; readers that have begun go on."""
        self._connection.close()


class SnapshotReader:
    """Reads a table once, as Spark's stream readers do: offsets, partitions, rows."""

    def __init__(self, reading: TableReading) -> None:
        self._reading = reading
        self._end: Offset | None = None
        self._shared: SharedSnapshot | None = None

    def initial_offset(self) -> Offset:
        """Where a query begins that has no checkpoint."""
        return START

    def latest_offset(self) -> Offset:
        """The end: called before every batch, so that the one before is done."""
        self.stop()
        if self._end is None:
            reading = self._reading
            try:
                with client.connect(reading.url, seconds=reading.seconds) as connection:
                    bounds = find_bounds(
                        connection, reading.table, condition=reading.condition, partitions=reading.partitions
                    )
            except Exception as error:
                client.raise_translated(error, where=reading.where)
            self._end = {"phase": DONE, "bounds": bounds}
        return self._end

    def partitions(self, start: Offset, end: Offset) -> list[Mapping[str, Any]]:
        """The ranges between two offsets; of an offset and itself, which Spark asks for after a restart, there are none."""
        if end.get("phase") == DONE:
            self._end = end
        if start == end:
            return []
        if self._shared is None or not self._shared.is_open:
            self._shared = shared_snapshot(self._reading)
        return range_partitions(end["bounds"], self._shared.name)

    def read(self, partition: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """The rows of one range; called in Spark's tasks."""
        return read_range(self._reading, partition)

    def stop(self) -> None:
        """Let go of the snapshot."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None


def shared_snapshot(reading: TableReading) -> SharedSnapshot:
    """Take a snapshot of the moment."""
    try:
        return SharedSnapshot(client.connect(reading.url, seconds=reading.seconds))
    except Exception as error:
        client.raise_translated(error, where=reading.where)


def range_partitions(
    bounds: Sequence[Bound], snapshot: str, *, without: Since | None = None
) -> list[Mapping[str, Any]]:
    """One partition per range: the first and the last are open, so that every row is in one of them."""
    edges = [None, *bounds, None]
    more = {} if without is None else {"without": asdict(without)}
    return [
        {"snapshot": snapshot, "lower": lower, "upper": upper, **more}
        for lower, upper in itertools.pairwise(edges)
    ]


@dataclass(frozen=True, slots=True)
class Since:
    """The transactions that a second snapshot sees and the first did not, by the numbers of 32 bits that rows have."""

    first: int
    count: int
    running: tuple[int, ...]

    @classmethod
    def between(cls, seen: str, now: str) -> Since:
        """Read what `pg_current_snapshot` returned for both.

        >>> Since.between("10:20:12,15", "30:32:30")
        Since(first=20, count=12, running=(12, 15))
        """
        before, after = Visibility.of(seen), Visibility.of(now)
        running = tuple(xid % XIDS for xid in before.running)
        return cls(before.high % XIDS, after.high - before.high, running)

    def condition(self) -> sql.Composable:
        """Rows that none of them has written. A row of a subtransaction that was running may pass all the same: its
        number is its own."""
        from psycopg import sql

        xid = "xmin::text::int8"
        parts = [f"({xid} - {self.first} + {XIDS}) % {XIDS} >= {self.count}"]
        if self.running:
            parts.append(f"{xid} NOT IN ({', '.join(map(str, self.running))})")
        return sql.SQL(" AND ".join(parts))


def read_range(reading: TableReading, partition: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Give the rows of one range, as the snapshot of the batch sees them."""
    import pyarrow as pa
    from psycopg import sql

    conditions: list[sql.Composable] = []
    if (within := range_condition(reading.table, partition["lower"], partition["upper"])) is not None:
        conditions.append(within)
    if reading.condition:
        conditions.append(sql.SQL(reading.condition))
    if "without" in partition:
        conditions.append(Since(**partition["without"]).condition())
    try:
        with client.connect(reading.url) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(
                sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(partition["snapshot"]))
            )
            for batch in read_rows(
                connection,
                reading.table,
                conditions=conditions,
                specials=reading.specials,
                where=reading.where,
            ):
                if reading.operation:
                    inserts = pa.repeat(pa.scalar(INSERT), batch.num_rows)
                    yield batch.append_column(OPERATION, inserts)
                else:
                    yield batch
    except Exception as error:
        client.raise_translated(error, where=reading.where)


def _value(connection: psycopg.Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
