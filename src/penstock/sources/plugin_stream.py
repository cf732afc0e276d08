"""The side of Spark of a source plugin: a data source whose processes ask the driver for offsets and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "penstock_plugin"
"""The name of the data source in Spark."""


class FeedClient:
    """A connection to a feed on the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        from multiprocessing.connection import Client

        self._feed = options["feed"]
        address = (options["host"], int(options["port"]))
        self._connection = Client(address, authkey=bytes.fromhex(options["token"]))

    def ask(self, what: str, **arguments: Any) -> Any:
        """Return the answer to a request that is no rows."""
        self._send(what, arguments)
        return self._value(self._connection.recv_bytes())

    def rows(self, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range."""
        import pyarrow as pa

        self._send("rows", {"start": start, "end": end})
        while True:
            answer = self._connection.recv_bytes()
            if answer[:1] != b"B":
                self._value(answer)
                return
            with pa.ipc.open_stream(pa.py_buffer(answer).slice(1)) as reader:
                yield from reader

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _send(self, what: str, arguments: Mapping[str, Any]) -> None:
        self._connection.send_bytes(json.dumps({"feed": self._feed, "ask": what, **arguments}).encode())

    def _value(self, answer: bytes) -> Any:
        if answer[:1] == b"E":
            raise RuntimeError(answer[1:].decode())
        return json.loads(answer[1:])


@cache
def data_source() -> type[Any]:
    """Return the class of the data source; it is made here so that nobody loads PySpark who only names a source."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Range(InputPartition):
        """The rows of one epoch."""

        def __init__(self, start: Any, end: Any) -> None:
            self.start = start
            self.end = end

    class FeedStreamReader(DataSourceStreamReader):
        """Lives in a process of Spark's beside the driver; `read` runs in workers."""

        def __init__(self, options: Mapping[str, str]) -> None:
            self._options = dict(options)
            self._client: FeedClient | None = None

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # PySpark's name
            return dict(self._feed().ask("initial"))

        def latestOffset(self) -> dict[str, Any]:  # noqa: N802
            return dict(self._feed().ask("latest"))

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            return [Range(start, end)] if self._feed().ask("plan", start=start, end=end) else []

        def read(self, partition: Any) -> Iterator[Any]:
            client = FeedClient(self._options)
            try:
                yield from client.rows(partition.start, partition.end)
            finally:
                client.close()

        def stop(self) -> None:
            if self._client is not None:
                self._client.close()

        def _feed(self) -> FeedClient:
            if self._client is None:
                self._client = FeedClient(self._options)
                self._client.ask("begin")
            return self._client

        def __getstate__(self) -> dict[str, Any]:
            return {"_options": self._options, "_client": None}

    class PluginDataSource(DataSource):
        """The data source that stands for all source plugins."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return str(self.options["ddl"])

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return FeedStreamReader(self.options)

    return PluginDataSource
