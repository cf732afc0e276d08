"""The rows of a table, and then every change: what Spark's stream reader of `postgres_cdc` does.

An offset is a phase and a position of the log:

    {"phase": "start"}                                     nothing was read
    {"phase": "snapshot", "lsn": ..., "bounds": [...]}     the rows of the table, by ranges of its key
    {"phase": "following", "lsn": ...}                     every transaction that ends up to the position

The slot is made before the snapshot is taken, so that every transaction is in one of them, and those that the
snapshot has seen are left out of the changes. `seen` says which, until the log is behind `until`. An epoch that comes
again reads the same range of the log, byte for byte. The slot moves to a position when Spark has committed the epoch
that ends there, and no earlier.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import ConnectorError
from penstock.sources.postgres import client, slot, toast
from penstock.sources.postgres.change import Shape, Span, rows_of
from penstock.sources.postgres.client import lsn_number, lsn_text
from penstock.sources.postgres.pgoutput import Changes, in_whole_transactions
from penstock.sources.postgres.ranges import find_bounds
from penstock.sources.postgres.slot import Slot
from penstock.sources.postgres.snapshot import (
    START,
    Offset,
    SharedSnapshot,
    Since,
    TableReading,
    range_partitions,
    read_range,
    shared_snapshot,
)
from penstock.sources.postgres.visibility import Visibility

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

SNAPSHOT, FOLLOWING = "snapshot", "following"
LOOK_SECONDS = 0.02
"""Between two looks for changes."""
WAIT_SECONDS = 0.06
"""How long one call waits for changes; the other sources of a query wait as long."""
IDLE_SECONDS = 10.0
"""How often the slot moves while only other tables change, so that Postgres can throw its log away."""
AHEAD_BYTES = 64 << 20
"""How much is read ahead; the rows of a larger batch are read by a task, some at a time."""
IDLE_BYTES = 16 << 20
_PAGE = 8192
_PAGE_HEADER = 64  # and more than that

_log = logging.getLogger("penstock.postgres_cdc")


def described(offset: Mapping[str, Any]) -> str:
    """An offset for people.

    >>> described({"phase": "snapshot", "lsn": "0/19", "bounds": [["5"]]}), described({"phase": "following", "lsn": "0/1A"})
    ('snapshot, 2 ranges', 'snapshot done, following: read to 0/1A')
    """
    match offset.get("phase"):
        case "snapshot":
            return f"snapshot, {len(offset['bounds']) + 1} ranges"
        case "following":
            return f"snapshot done, following: read to {offset['lsn']}"
    return "not begun"


@dataclass(frozen=True, slots=True)
class Following:
    """How a table is followed."""

    slot: Slot
    on_truncate: Literal["fail", "ignore"] = "fail"
    snapshot: bool = True
    max_rows: int = 200_000
    ends: bool = False
    """Whether the query reads what is there when it starts and ends: one batch has all of it."""


class ChangeReader:
    """Reads a table and its changes; `latest_offset` reads ahead, so that a batch has its rows when it begins."""

    def __init__(self, reading: TableReading, following: Following) -> None:
        self._reading = reading
        self._following = following
        self._shape = Shape(reading.table, reading.specials, following.on_truncate, reading.where)
        self._current: Offset | None = None
        self._ahead: tuple[Offset, Offset, list[pa.RecordBatch]] | None = None
        self._shared: SharedSnapshot | None = None
        self._connection: psycopg.Connection | None = None
        self._confirmed = -1
        """Where the slot is, as far as this connection has moved it."""
        self._scanned = -1
        """Up to here the log has nothing for us."""
        self._candidate: int | None = None
        self._next_candidate = time.monotonic() + IDLE_SECONDS
        self._next_look = 0.0
        self._away_since: float | None = None

    # What Spark calls

    def initial_offset(self) -> Offset:
        """Where a query begins that has no checkpoint."""
        return START

    def latest_offset(self) -> Offset:
        """Called before every batch, when the one before is committed: the end of the next batch, or the end of the
        last when there is nothing."""
        current = self._current or START
        while True:
            try:
                end = self._next(current)
            except Exception as error:
                end = self._after(error, current)
                if self._following.ends:
                    continue  # nobody asks once more
            else:
                if self._away_since is not None:
                    _log.warning("%s answers again", self._reading.where)
                self._away_since = None
            self._current = end
            return end

    def partitions(self, start: Offset, end: Offset) -> list[Mapping[str, Any]]:
        """Called for every batch, and with the last end twice after a restart: from there on the reader goes on."""
        if self._current is None:
            self._current = end
        if start == end:
            return []
        if end["phase"] == SNAPSHOT:
            without = None
            if self._shared is None or not self._shared.is_open:
                self._shared = shared_snapshot(self._reading)
                without = Since.between(end["seen"], self._shared.visible())
            return range_partitions(end["bounds"], self._shared.name, without=without)
        return [{"start": start, "end": end}]

    def ahead(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch] | None:
        """The rows between two offsets when they were read ahead; None for those that tasks read."""
        if self._ahead is not None and self._ahead[:2] == (start, end):
            return iter(self._ahead[2])
        return None

    def read(self, partition: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Called in Spark's tasks."""
        if "snapshot" in partition:
            return read_range(self._reading, partition)
        return self._again(partition["start"], partition["end"])

    def stop(self) -> None:
        """Close what is open; the slot stays."""
        self._close_shared()
        self._disconnect()

    # The next offset

    def _next(self, current: Offset) -> Offset:
        if current["phase"] == START["phase"]:
            return self._begin()
        self._close_shared()
        lsn = lsn_number(current["lsn"])
        if current["phase"] == SNAPSHOT:
            _log.info("%s: snapshot done, following", self._reading.where)
            current = self._position(current, lsn)
            if not self._following.ends:
                return current
        connection = self._at(lsn)
        if self._following.ends:
            return self._look(connection, current)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            end = self._look(connection, current)
            if end != current or time.monotonic() + LOOK_SECONDS > deadline:
                return end
            time.sleep(LOOK_SECONDS)

    def _begin(self) -> Offset:
        """Make the slot, take the snapshot, and cut the table into ranges."""
        reading, following = self._reading, self._following
        connection = self._connected()
        state = slot.ensure(connection, following.slot, reading.table, where=reading.where)
        offset = {"phase": FOLLOWING, "lsn": lsn_text(state.confirmed)}
        if not following.snapshot:
            return offset
        self._close_shared()
        self._shared = shared_snapshot(reading)
        seen = self._shared.visible()
        # What the snapshot has seen was in the log before.
        _, until = _positions(connection)
        bounds = find_bounds(
            connection, reading.table, condition=reading.condition, partitions=reading.partitions
        )
        return {**offset, "phase": SNAPSHOT, "seen": seen, "until": lsn_text(until), "bounds": bounds}

    def _position(self, before: Offset, lsn: int) -> Offset:
        """The offset of a position of the log."""
        offset: Offset = {"phase": FOLLOWING, "lsn": lsn_text(lsn)}
        if "until" in before and lsn < lsn_number(before["until"]):
            offset |= {"seen": before["seen"], "until": before["until"]}
        return offset

    def _at(self, lsn: int) -> psycopg.Connection:
        """A connection whose slot has moved to where the last committed epoch ends."""
        connection = self._connected()
        if self._confirmed < 0:
            # After a kill of the server the slot is where it was some time ago, and everything since comes once more.
            where = self._reading.where
            self._confirmed = slot.require_at(connection, self._following.slot, lsn, where=where).confirmed
        if self._confirmed < lsn:
            slot.advance(connection, self._following.slot.name, lsn)
            self._confirmed = lsn
        return connection

    def _look(self, connection: psycopg.Connection, current: Offset) -> Offset:
        """The end of the next batch: of the transactions that wait in the slot, or of what the log has for other tables."""
        flushed, inserted = _positions(connection)
        if flushed <= self._scanned or time.monotonic() < self._next_look:
            return self._idle(connection, current, inserted)
        began = time.monotonic()
        read_to, batches = self._peeked(connection, current, upto=flushed if self._following.ends else None)
        # Looking costs as much as there is log since the slot's oldest transaction: not more than a third of the time goes there.
        self._next_look = time.monotonic() + min(1.0, 2 * (time.monotonic() - began))
        if read_to is None or read_to <= lsn_number(current["lsn"]):
            self._scanned = flushed
            return self._idle(connection, current, inserted)
        end = self._position(current, read_to)
        self._ahead = None if batches is None else (current, end, batches)
        self._candidate = None
        return end

    def _peeked(
        self, connection: psycopg.Connection, current: Offset, *, upto: int | None
    ) -> tuple[int | None, list[pa.RecordBatch] | None]:
        """The end of the transactions that wait in the slot, and their rows; None for those that are too large to be
        read ahead."""
        count = None if self._following.ends else self._following.max_rows
        messages: list[bytes] = []
        size = 0
        with slot.Peek(connection, self._following.slot, upto=upto, count=count) as peek:
            for piece in peek.pieces():
                size += sum(map(len, piece))
                if size > AHEAD_BYTES:
                    return peek.end(), None
                messages += piece
        rows = rows_of(messages, self._shape, self._span(current), fill=self._fill(connection))
        return rows.end, rows.batches

    def _idle(self, connection: psycopg.Connection, current: Offset, inserted: int) -> Offset:
        """Go on to a position up to which only other tables have changed."""
        lsn = lsn_number(current["lsn"])
        if self._candidate is not None and lsn < self._candidate <= self._scanned:
            end = self._position(current, self._candidate)
            self._ahead, self._candidate = (current, end, []), None
            return end
        if self._candidate is None and (
            time.monotonic() >= self._next_candidate or inserted - lsn > IDLE_BYTES
        ):
            self._next_candidate = time.monotonic() + IDLE_SECONDS
            self._require_published(connection)
            # The end of a record of the log; right behind the header of a page it may be that of the page instead.
            if inserted > lsn and inserted % _PAGE > _PAGE_HEADER:
                self._candidate = inserted
        return current

    def _require_published(self, connection: psycopg.Connection) -> None:
        if not slot.publishes(connection, self._following.slot.publication, self._reading.table):
            raise ConnectorError(
                f"the publication {self._following.slot.publication} does not have the table any more",
                code="CDC_PUBLICATION",
                where=self._reading.where,
                hint="add it, and reset the state of the pipeline: changes since then are not in the log",
            )

    # Rows

    def _again(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        """Read a range of the log once more."""
        reading, begin = self._reading, lsn_number(start["lsn"])
        try:
            with client.connect(reading.url, seconds=reading.seconds) as connection:
                slot.require_at(connection, self._following.slot, begin, where=reading.where)
                upto = lsn_number(end["lsn"])
                span, fill = self._span(start, upto=upto), self._fill(connection)
                with slot.Peek(connection, self._following.slot, upto=upto) as peek:
                    for messages in in_whole_transactions(peek.pieces()):
                        yield from rows_of(messages, self._shape, span, fill=fill).batches
        except Exception as error:
            client.raise_translated(error, where=reading.where)

    def _span(self, start: Offset, *, upto: int | None = None) -> Span:
        seen = Visibility.of(start["seen"]) if "seen" in start else None
        return Span(lsn_number(start["lsn"]), upto, seen)

    def _fill(self, connection: psycopg.Connection) -> Callable[[Changes], Changes]:
        return lambda changes: toast.filled(connection, self._reading.table, changes)

    # The connection

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._disconnect()
            self._connection = client.connect(self._reading.url)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._confirmed, self._scanned, self._candidate = None, -1, -1, None

    def _close_shared(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _after(self, error: Exception, current: Offset) -> Offset:
        """After an error: nothing new for now when it goes away by itself, or else raise it."""
        reading = self._reading
        reason = client.transient(error)
        self._disconnect()
        if reason is None:
            client.raise_translated(error, where=reading.where)
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            _log.warning("waiting for %s: %s", reading.where, reason)
        if now - self._away_since > reading.seconds:
            client.raise_translated(error, where=reading.where)
        time.sleep(0.25)  # other sources of the query go on meanwhile
        return current


def _positions(connection: psycopg.Connection) -> tuple[int, int]:
    """Up to where the log is on the disk, and up to where it is written."""
    row = connection.execute(
        "SELECT pg_current_wal_flush_lsn()::text, pg_current_wal_insert_lsn()::text"
    ).fetchone()
    assert row is not None
    return lsn_number(row[0]), lsn_number(row[1])
