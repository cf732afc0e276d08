"""What a Spark task does with its rows: they go through a process of Deno, which later tasks of the same Python
worker use again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataError, PenstockError
from penstock.transforms.failed_rows import TaskFailed, beside_failed, failed_rows, shown_row
from penstock.transforms.input_operation import with_deletes, with_operation
from penstock.transforms.json_columns.decoding import decode_column
from penstock.transforms.json_columns.encoding import EncodingStyle, encode_column
from penstock.transforms.script.failure import Ended
from penstock.transforms.script.process import Process
from penstock.transforms.script.program import Program
from penstock.transforms.script.wire import MessageKind

MOST_ROWS = 10_000
MOST_BYTES = 16_000_000
MOST_ANSWER_BYTES = 2_000_000_000
"""What a batch may become: it is in the memory of the Python worker until the script is through with it."""
MOST_PROCESSES = 8
MOST_ENDS = 10
"""Rows of one batch that may end the process of a script, each of which takes its time, before the query fails."""

_processes: OrderedDict[tuple[Program, int], Process] = OrderedDict()


@dataclass(frozen=True, slots=True)
class ScriptTask:
    """A script in a task."""

    program: Program
    out_schema: pa.Schema
    """The columns that leave the task: those of the script, and of failed rows when rows may fail."""
    zone: str
    seconds: float
    memory: int
    node: str
    keeps_failed: bool
    keys: tuple[str, ...] = ()
    """The primary key, when it goes through the script: rows of which the script makes nothing are deleted by it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for piece in _pieces(batch):
                    yield from self.process(piece)
        except PenstockError as error:
            raise TaskFailed(error) from None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Give the rows that a script makes of some rows; raises DataError for one that fails, unless failed rows are kept."""
        answer = _Batch(self, batch).answer()
        pieces = answer.pieces(batch, self)
        if not self.keeps_failed:
            if answer.failed:
                raise self._error(batch, answer)
            yield from pieces
            return
        failed_texts = {row: _placed(text, where) for row, (text, where) in answer.failed.items()}
        for piece in pieces:
            yield beside_failed(piece, self.out_schema)
        if failed_texts:
            yield failed_rows(batch, failed_texts, self.out_schema)

    def running(self) -> Process:
        """Return the process, started when there is none."""
        key = (self.program, self.memory)
        process = _processes.pop(key, None)
        if process is None or not process.is_alive:
            if process is not None:
                process.kill()
            process = Process(self.program, memory=self.memory)
        _processes[key] = process
        while len(_processes) > MOST_PROCESSES:
            _processes.popitem(last=False)[1].kill()
        return process

    def _error(self, batch: pa.RecordBatch, answer: _Answer) -> DataError:
        row, (text, where) = min(answer.failed.items())
        return DataError(
            f"the script {self.node} failed for a row: {_placed(text, where)}; the row is {shown_row(batch, row)}",
            code="SCRIPT_ROW",
            where=where or self.program.file,
            hint="mend the script, or let such rows go with on_error: drop or on_error: dead_letter",
        )


def end_processes() -> None:
    """End all processes of scripts that tasks of this Python process have left for others."""
    while _processes:
        _processes.popitem()[1].kill()


@dataclass(slots=True)
class _Part:
    """Some rows of an answer."""

    columns: list[pa.Array]
    rows: list[int]
    """The row of the batch that each was made of."""


@dataclass(slots=True)
class _Answer:
    """What a script made of a batch."""

    parts: list[_Part] = field(default_factory=list)
    failed: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """By the row: what is wrong, and where in the script."""

    def pieces(self, batch: pa.RecordBatch, task: ScriptTask) -> Iterator[pa.RecordBatch]:
        """Give its rows, without those of which a part is bad, with the operation of the row that they were made of."""
        schema = task.program.out_schema
        bad = pa.array(sorted(self.failed), pa.int64())
        pieces, origins = list[pa.RecordBatch](), list[pa.Array]()
        for part in self.parts:
            columns, rows = part.columns, pa.array(part.rows, pa.int64())
            if self.failed:
                good = pc.invert(pc.is_in(rows, value_set=bad))
                columns, rows = [column.filter(good) for column in columns], rows.filter(good)
            if len(rows):
                pieces.append(with_operation(pa.RecordBatch.from_arrays(columns, schema=schema), batch, rows))
                origins.append(rows)
        if not task.keys:
            yield from pieces
            return
        together = pa.Table.from_batches(pieces, schema).combine_chunks()
        [rows] = together.to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]
        answered = pa.concat_arrays([*origins, pa.array([], pa.int64())])
        yield with_deletes(rows, batch, answered, keys=task.keys)


class _Batch:
    """The way of one batch through a script, also when the process ends on the way."""

    def __init__(self, task: ScriptTask, batch: pa.RecordBatch) -> None:
        self._task = task
        self._batch = batch
        style = EncodingStyle("text" if task.program.bigint else "safe")
        self._columns = [encode_column(column, style) for column in batch.columns]
        self._revive = [at for at, column in enumerate(self._columns) if column.special]
        self._answer = _Answer()
        self._ends = 0

    def answer(self) -> _Answer:
        """Return what the script makes of the rows, and which fail; raises DataError when that is not known."""
        for name, column in zip(self._batch.schema.names, self._columns, strict=True):
            for row, text in column.bad.items():
                self._fail(row, f"column '{name}' {text}", None)
        rows = [row for row in range(self._batch.num_rows) if row not in self._answer.failed]
        while rows:
            rows = self._send(rows)
        return self._answer

    def _send(self, rows: Sequence[int]) -> list[int]:
        """Send these rows; return those that are left when the process ended at one of them."""
        body = self._message(rows, announce=False)
        try:
            parts, failed = self._exchange(body, self._task.seconds)
        except Ended as ended:
            # Once more, and this time the host says which row comes next: the process may have been ended by somebody else, and
            # when a row ended it, that is the row. Twice the time, because a batch may be slow without a slow row.
            try:
                announced = self._message(rows, announce=True)
                parts, failed = self._exchange(announced, 2 * self._task.seconds)
            except Ended as again:
                return self._fail_row(rows, again if again.row is not None else ended)
        self._take(rows, parts, failed)
        return []

    def _exchange(self, body: bytes, seconds: float) -> tuple[list[Any], list[Any]]:
        parts, failed, size = list[Any](), list[Any](), 0
        with closing(self._task.running().call(body, seconds=seconds)) as messages:
            for kind, text in messages:
                message = _read(text)
                if kind is not MessageKind.PART:
                    failed = message["errors"]
                    continue
                parts.append(self._part(message))
                size += sum(column.nbytes for column in parts[-1][1])
                if size > MOST_ANSWER_BYTES:
                    raise DataError(
                        f"the script {self._task.node} made more than {MOST_ANSWER_BYTES / 1e9:g} GB of "
                        f"{self._batch.num_rows} rows",
                        code="SCRIPT_MEMORY",
                        where=self._task.program.file,
                        hint="return less for each row",
                    )
        return parts, failed

    def _message(self, rows: Sequence[int], *, announce: bool) -> bytes:
        import orjson

        every = len(rows) == self._batch.num_rows
        columns = [
            column.values if every else [column.values[row] for row in rows] for column in self._columns
        ]
        message = {
            "columns": columns,
            "count": len(rows),
            "revive": self._revive,
            "stop": not self._task.keeps_failed,
            "announce": announce,
        }
        return orjson.dumps(message)

    def _part(self, message: dict[str, Any]) -> tuple[list[int], list[pa.Array], dict[int, str]]:
        """The rows of a part as Arrow has them, and what is wrong with some."""
        columns, bad = list[pa.Array](), dict[int, str]()
        for values, column in zip(message["columns"], self._task.program.out_schema, strict=True):
            decoded = decode_column(values, column.type, zone=self._task.zone)
            columns.append(decoded.values)
            for index, text in decoded.bad.items():
                bad.setdefault(message["rows"][index], f"column '{column.name}' {text}")
        return message["rows"], columns, bad

    def _take(self, rows: Sequence[int], parts: Sequence[Any], failed: Sequence[Any]) -> None:
        every = len(rows) == self._batch.num_rows
        for row, text, where in failed:
            self._fail(rows[row], text, where)
        for part_rows, columns, bad in parts:
            for row, text in bad.items():
                self._fail(rows[row], text, None)
            self._answer.parts.append(
                _Part(columns, part_rows if every else [rows[row] for row in part_rows])
            )

    def _fail(self, row: int, text: str, where: str | None) -> None:
        self._answer.failed.setdefault(row, (text, where))

    def _fail_row(self, rows: Sequence[int], ended: Ended) -> list[int]:
        """Note that the row at which a process ended has failed, and return the others; raises DataError when no row is known."""
        task = self._task
        text = f"the script took longer than {task.seconds:g} s" if ended.cause == "time" else f"{ended.text}"
        code = {"time": "SCRIPT_TIMEOUT", "memory": "SCRIPT_MEMORY", "ended": "SCRIPT_ENDED"}[ended.cause]
        hint = {
            "time": "give it more time (timeout:), or look for a loop without an end",
            "memory": "give it more memory (memory:), or look for what it collects from row to row",
            "ended": "something ended the process, perhaps for want of memory; start the pipeline again",
        }[ended.cause]
        self._ends += 1
        if ended.row is None or self._ends > MOST_ENDS:
            many = f", for {self._ends} rows of one batch" if ended.row is not None else ""
            raise DataError(
                f"the script {task.node} failed: {text}{many}",
                code=code,
                where=task.program.file,
                hint=hint,
            )
        row = rows[ended.row]
        if not task.keeps_failed:
            raise DataError(
                f"the script {task.node} failed for a row: {text}; the row is {shown_row(self._batch, row)}",
                code=code,
                where=task.program.file,
                hint=hint,
            )
        self._fail(row, text, None)
        # Those before it have not been answered either.
        return [*rows[: ended.row], *rows[ended.row + 1 :]]


def _placed(text: str, where: str | None) -> str:
    return f"{text} ({where})" if where else text


def _read(text: bytes) -> dict[str, Any]:
    import orjson

    message: dict[str, Any] = orjson.loads(text)
    return message


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of a size that a message may have."""
    count = max(-(-batch.num_rows // MOST_ROWS), -(-batch.nbytes // MOST_BYTES), 1)
    size = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
