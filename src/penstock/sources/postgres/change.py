"""Messages of logical replication as rows of the table: whole transactions, each row with what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.data.operation import OPERATION
from penstock.errors import DataError
from penstock.sources.postgres import pgoutput
from penstock.sources.postgres.client import lsn_text
from penstock.sources.postgres.layout import with_names_of_now
from penstock.sources.postgres.pgoutput import Changes, Messages, RelationMessage
from penstock.sources.postgres.table import Table
from penstock.sources.postgres.value import SpecialValues, as_column
from penstock.sources.postgres.visibility import Visibility

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

BATCH_ROWS = 50_000
BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows are made of."""

    table: Table
    specials: SpecialValues
    on_truncate: Literal["fail", "ignore"]
    where: str


@dataclass(frozen=True, slots=True)
class Span:
    """The transactions that are wanted."""

    after: int
    """Those that end behind this position of the log."""
    upto: int | None = None
    """And not behind this one."""
    seen: Visibility | None = None
    """But for those that a snapshot has seen."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows, and the position behind the last transaction that was looked at; None when there was none."""

    end: int | None
    batches: list[pa.RecordBatch]


def rows_of(
    messages: Sequence[bytes], shape: Shape, span: Span, *, fill: Callable[[Changes], Changes]
) -> ChangedRows:
    """Return the rows of the transactions in the span; `fill` gives them large values that no message has."""
    import numpy as np

    parsed = pgoutput.parse(messages)
    transactions = parsed.transactions
    within = transactions.end_lsns > span.after
    if span.upto is not None:
        within &= transactions.end_lsns <= span.upto
    if not within.any():
        return ChangedRows(None, [])
    wanted = within if span.seen is None else within & ~span.seen.sees(transactions.xids)
    owner = np.searchsorted(transactions.begins, np.arange(len(parsed)), side="right") - 1
    about_table = pgoutput.rows_of(parsed, shape.table.oid)
    if span.upto is None:
        changed = _first_changed(parsed, about_table & wanted[owner], shape, owner)
        if changed is not None and within[:changed].any():
            # What comes before the change of the table is read as the table was, and the change ends the next batch.
            within[changed:] = wanted[changed:] = False
    is_wanted = wanted[owner]
    _refuse_truncates(parsed, shape, is_wanted)
    batches = [
        batch
        for places, relation in _by_relation(parsed, about_table & is_wanted, shape)
        for batch in _batches(parsed, places, relation, shape, transactions.end_lsns[owner], fill)
    ]
    return ChangedRows(int(transactions.end_lsns[within].max()), batches)


def _first_changed(
    messages: Messages, rows: NDArray[np.bool_], shape: Shape, owner: NDArray[np.int64]
) -> int | None:
    """The first transaction with rows of another shape than the table had when the query was started."""
    ends = messages.transactions.end_lsns
    for places, relation in _by_relation(messages, rows, shape):
        transaction = int(owner[places[0]])
        if ends[transaction] > shape.table.looked_up_at and _differences(relation, shape.table):
            return transaction
    return None


def _by_relation(
    messages: Messages, rows: NDArray[np.bool_], shape: Shape
) -> Iterator[tuple[NDArray[np.int64], RelationMessage]]:
    """Give the rows of each shape that the table had, in their order."""
    import numpy as np

    table, where = shape.table, shape.where
    described = pgoutput.relations(messages)
    for relation in described.values():
        if (relation.schema, relation.name) == (table.schema, table.name) and relation.oid != table.oid:
            raise _changed(f"the table {table.display} was dropped and made again", where)
    own = [(place, relation) for place, relation in described.items() if relation.oid == table.oid]
    ends = [place for place, _ in own[1:]] + [len(messages)]
    for (begin, relation), end in zip(own, ends, strict=True):
        places = np.flatnonzero(rows[begin:end]) + begin
        if len(places):
            yield places, relation


def _batches(
    messages: Messages,
    places: NDArray[np.int64],
    relation: RelationMessage,
    shape: Shape,
    end_lsns: NDArray[np.int64],
    fill: Callable[[Changes], Changes],
) -> Iterator[pa.RecordBatch]:
    import numpy as np

    table = shape.table
    relation = _as_now(relation, shape, int(end_lsns[places[0]]))
    lengths = np.diff(np.append(messages.starts, len(messages.data)))[places]
    behind = np.cumsum(lengths)
    begin = 0
    while begin < len(places):
        limit = (behind[begin - 1] if begin else 0) + BATCH_BYTES
        end = min(begin + BATCH_ROWS, max(begin + 1, int(np.searchsorted(behind, limit))))
        changes = pgoutput.decode(
            messages,
            places[begin:end],
            relation,
            columns=[column.name for column in table.columns],
            key=table.key,
        )
        begin = end
        _require_key(changes, table, shape.where)
        if changes.unchanged:
            changes = fill(changes)
        yield _batch(changes, shape)


def _batch(changes: Changes, shape: Shape) -> pa.RecordBatch:
    import pyarrow as pa

    count = len(changes.operations)
    columns = [
        as_column(
            # A column that is younger than the row: older rows have its first default.
            changes.texts[column.name]
            if column.name in changes.texts
            else pa.repeat(pa.scalar(column.missing, pa.large_string()), count),
            column,
            specials=shape.specials,
            where=shape.where,
        )
        for column in shape.table.columns
    ]
    names = [*(column.name for column in shape.table.columns), OPERATION]
    return pa.RecordBatch.from_arrays([*columns, changes.operations], names)


def _as_now(relation: RelationMessage, shape: Shape, lsn: int) -> RelationMessage:
    """The shape of rows with the names that its columns had when the query was started, which only rows from before may lack."""
    table = shape.table
    if lsn > table.looked_up_at:
        _require_shape(relation, shape, lsn)
        return relation
    now = with_names_of_now(relation, table)
    if now is None:
        then = ", ".join(column.name for column in relation.columns)
        raise DataError(
            f"the table {table.display} had the columns {then} at {lsn_text(lsn)}, and was changed "
            "so much that nobody can tell which of them "
            "are those that it has now",
            code="CDC_TABLE_CHANGED",
            where=shape.where,
            hint="reset the state of the pipeline, which begins with a new snapshot",
        )
    return now


def _require_shape(relation: RelationMessage, shape: Shape, lsn: int) -> None:
    """Refuse rows of another shape than the table had when the query was started."""
    differences = _differences(relation, shape.table)
    if differences:
        raise _changed(
            f"the table {shape.table.display} was changed at {lsn_text(lsn)}: {', '.join(differences)}",
            shape.where,
        )


def _differences(relation: RelationMessage, table: Table) -> list[str]:
    """What is another than it was when the table was looked up, in words."""
    ours = {column.name: column for column in table.columns}
    theirs = {column.name: column for column in relation.columns}
    differences = [
        f"the column '{name}' was added" for name in theirs if name not in ours and name not in table.others
    ]
    differences += [f"the column '{name}' is gone" for name in ours if name not in theirs]
    differences += [
        f"the column '{name}' has another type"
        for name, column in theirs.items()
        if name in ours
        and (
            column.oid != ours[name].oid
            or (ours[name].type.startswith("decimal") and column.modifier != ours[name].modifier)
        )
    ]
    return differences


def _changed(text: str, where: str) -> DataError:
    return DataError(
        text,
        code="CDC_TABLE_CHANGED",
        where=where,
        hint="nothing was lost: start the pipeline again, and it goes on with the table as it is now",
    )


def _require_key(changes: Changes, table: Table, where: str) -> None:
    for name in table.key:
        if name not in changes.texts or changes.texts[name].null_count:
            raise DataError(
                f"a change of {table.display} does not tell the key column '{name}'",
                code="CDC_IDENTITY",
                where=where,
                hint=f"ALTER TABLE {table.display} REPLICA IDENTITY FULL, and reset the state of the pipeline for a new snapshot",
            )


def _refuse_truncates(messages: Messages, shape: Shape, is_wanted: NDArray[np.bool_]) -> None:
    if shape.on_truncate == "ignore":
        return
    if is_wanted[pgoutput.truncates(messages, shape.table.oid)].any():
        raise DataError(
            f"the table {shape.table.display} was emptied by TRUNCATE, which does not say which rows are gone",
            code="CDC_TRUNCATED",
            where=shape.where,
            hint="on_truncate: ignore goes on and keeps the old rows downstream; or empty what is "
            "downstream and reset the state of the "
            "pipeline, which begins with a new snapshot",
        )
