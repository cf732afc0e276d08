"""A query's rows as Arrow batches that Spark sends while it makes them, bounded by rows and bytes.

Spark's own way to Python (`collectAsArrowToPython`) makes a whole partition in a task, holds it in the driver, and
bounds batches by rows only; and whoever reads cannot tell a result that was cut off from one that is whole. Here
tasks of a local Spark write each batch to the socket when it is made, the last frame says that the result is whole,
and without it the server's own error is raised. `ArrowStream.java` is the other end.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from penstock.spark.boot import janino

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA, BATCH, COMMIT, END = 1, 2, 3, 4
HEADER = struct.Struct("!iiqi")
SPOOLED_BYTES = 64 << 20
"""What is kept in memory of partitions whose turn has not come; more goes to a temporary file."""
_SERVERS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_STARTING = threading.Lock()
"""Held around `_SERVERS`, and while a server starts: `prepare` and a query come at the same time."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """One message: a schema, a batch of an attempt at a partition, or the news that the attempt counts."""

    kind: int
    partition: int
    attempt: int
    content: pa.Buffer


def collect(frame: DataFrame) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Run a query and return its columns and all of its rows, at most so many bytes as Spark's setting allows."""
    import pyarrow as pa

    sent, batches = collect_messages(frame)
    schema = pa.ipc.read_schema(sent)
    return schema, [pa.ipc.read_record_batch(batch, schema) for batch in batches]


def collect_messages(frame: DataFrame) -> tuple[pa.Buffer, list[pa.Buffer]]:
    """The same as Arrow messages, for whoever knows the schema better than what is sent."""
    frames = _of_query(frame, limited=True)
    sent = next(frames).content
    batches, attempts = _gathered(frames)
    return sent, [
        batch for partition in sorted(attempts) for batch in batches.get((partition, attempts[partition]), ())
    ]


def stream(frame: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query and return its columns and its rows in their order, while they arrive; the whole is never in memory."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    message, batches = stream_messages(frame)
    sent = pa.ipc.read_schema(message)
    large = frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    # The types that `toArrow` gives: those of Spark's columns, with times in UTC.
    schema = to_arrow_schema(
        frame.schema, error_on_duplicated_field_names_in_struct=True, prefers_large_types=large
    )
    return schema, (pa.ipc.read_record_batch(batch, sent).cast(schema) for batch in batches)


def stream_messages(frame: DataFrame) -> tuple[pa.Buffer, Iterator[pa.Buffer]]:
    """The same as Arrow messages: that of the schema, and those of the batches."""
    frames = _of_query(frame, limited=False)
    return next(frames).content, _in_order(frames)


def of_partitions(spark: SparkSession, rdd: Any, partitions: Sequence[int]) -> list[pa.Buffer]:
    """Return the batches of some partitions of an RDD that the server made, in the order in which they are asked for."""
    batches, attempts = _gathered(_frames(server(spark).servePartitions(rdd, list(partitions))))
    return [batch for partition in partitions for batch in batches.get((partition, attempts[partition]), ())]


def server(spark: SparkSession) -> Any:
    """The other end, in the JVM."""
    gateway = spark.sparkContext._gateway
    with _STARTING:
        running = _SERVERS.get(gateway)
        if running is None:
            running = _SERVERS[gateway] = janino.instance_for_tasks(spark, __package__, "ArrowStream")
        return running


def prepare(spark: SparkSession) -> None:
    """Bring up the other end while the caller does other things."""
    threading.Thread(target=_prepare, args=(spark,), name="penstock-results", daemon=True).start()


def _prepare(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError, AttributeError):  # whoever needs it next gets the error
        server(spark)


def _of_query(frame: DataFrame, *, limited: bool) -> Iterator[_Frame]:
    from pyspark import traceback_utils

    call_site: Any = traceback_utils.SCCallSiteSync
    with call_site(frame.sparkSession.sparkContext):
        served = server(frame.sparkSession).serveQuery(frame._jdf, limited)
    return _frames(served)


def _gathered(frames: Iterator[_Frame]) -> tuple[dict[tuple[int, int], list[pa.Buffer]], dict[int, int]]:
    """All batches by partition and attempt, and which attempt at each partition counts."""
    batches: dict[tuple[int, int], list[pa.Buffer]] = {}
    attempts: dict[int, int] = {}
    for message in frames:
        if message.kind == BATCH:
            batches.setdefault((message.partition, message.attempt), []).append(message.content)
        else:
            attempts[message.partition] = message.attempt
    return batches, attempts


def _frames(served: Sequence[Any]) -> Iterator[_Frame]:
    """Yield what a server sends; a result that does not come to its end raises what ended the server."""
    from pyspark.util import local_connect_and_auth

    address, secret, thread = served
    try:
        file, socket = local_connect_and_auth(address, secret)
    except Exception:
        join(thread)
        raise
    socket.settimeout(None)
    with contextlib.closing(socket), contextlib.closing(file):
        while (message := _next(file, thread)).kind != END:
            yield message
    join(thread)


def _next(file: Any, thread: Any) -> _Frame:
    import pyarrow as pa

    header = bytearray(HEADER.size)
    try:
        if _fill(file, header):
            kind, partition, attempt, length = HEADER.unpack(header)
            content = pa.allocate_buffer(length)
            if _fill(file, content):
                return _Frame(kind, partition, attempt, content)
    except OSError:
        join(thread)
        raise
    join(thread)
    raise ConnectionError("the result ended before its last row")


def _fill(file: Any, target: Any) -> bool:
    """Read as much as the target holds; False when there is not so much."""
    view = memoryview(target)
    while len(view):
        count = file.readinto(view)
        if not count:
            return False
        view = view[count:]
    return True


def join(thread: Any) -> None:
    """Wait for the end of a server, which is near when nothing comes from it any more, and raise what ended it."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception

    with unwrap_spark_exception():
        thread.getResult()


def _in_order(frames: Iterator[_Frame]) -> Iterator[pa.Buffer]:
    attempts: dict[int, int] = {}
    turn = 0
    with _Spool() as spool:
        for message in frames:
            if message.kind == BATCH:
                spool.put((message.partition, message.attempt), message.content)
                continue
            attempts[message.partition] = message.attempt
            while turn in attempts:
                yield from spool.take((turn, attempts.pop(turn)))
                turn += 1


class _Spool:
    """Batches that wait for their turn: in memory, and in a temporary file what is too much for it."""

    def __init__(self) -> None:
        self._batches: dict[tuple[int, int], list[pa.Buffer | tuple[int, int]]] = {}
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, key: tuple[int, int], batch: pa.Buffer) -> None:
        """Add a batch to an attempt at a partition."""
        waiting = self._batches.setdefault(key, [])
        if self._memory_bytes + batch.size <= SPOOLED_BYTES:
            self._memory_bytes += batch.size
            waiting.append(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="penstock-result-")  # noqa: SIM115  `__exit__` closes it
        start = self._file.seek(0, 2)
        self._file.write(memoryview(batch))
        waiting.append((start, batch.size))

    def take(self, key: tuple[int, int]) -> Iterator[pa.Buffer]:
        """Yield the batches of an attempt, and forget them."""
        import pyarrow as pa

        for batch in self._batches.pop(key, ()):
            if isinstance(batch, tuple):
                start, size = batch
                assert self._file is not None
                self._file.seek(start)
                yield pa.py_buffer(self._file.read(size))
            else:
                self._memory_bytes -= batch.size
                yield batch
