"""A source plugin at work, on the driver: it reads ahead, and gives Spark's processes the rows between two offsets.

Spark asks for offsets in a process of its own and reads rows in its workers; both come here, through a socket with a
key. So there is one instance of the plugin for a query, beside the state and the sinks, and a row is read once.

An offset of Spark's is `{"at": the plugin's offset, "rows": rows since the beginning}`. The number of rows makes an
epoch repeatable: what lies between two offsets is the first so many rows behind the first one, however many have come
since.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from penstock.data.record_batch import conformed
from penstock.errors import ConfigError, ConnectorError, DataError, InternalError, PenstockError, StateError
from penstock.options import Options
from penstock.plugin import KeyValues, PluginContext, SideOutput, SourcePlugin, TransientValues

Offset = dict[str, Any]

FIRST: Offset = {"at": None, "rows": 0}
LONGEST_OUTAGE = 300.0
"""Seconds for which a plugin is asked again that says that another system is away."""
ACCEPT_PAUSE = 0.05
"""Seconds to wait when a caller could not be answered."""
_PAUSES = (0.1, 0.2, 0.5, 1.0)


class SideStore(Protocol):
    """A side output, as the one who runs the query has it."""

    def check(self, spark: Any, *, name: str, settings: Any) -> None:
        """Try the connection, change nothing; `name` is that of the plugin."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows until the epoch ends."""

    def discard(self) -> None:
        """Forget the rows of an epoch that was cut short."""

    def store(self, target: Any, number: int) -> None:
        """Write the rows of an epoch."""

    def finalize(self, number: int) -> None:
        """The epoch does not come again."""

    def close(self) -> None:
        """Forget what is buffered, and close."""


@dataclass(frozen=True, slots=True)
class FeedRun:
    """The query that reads a source."""

    query: str
    name: str
    labels: Mapping[str, str]
    ends: bool
    """Whether it reads what is there now, and ends then."""
    state: KeyValues | None = None
    target: Any = None
    """What side outputs know of the query."""
    waiting: Callable[[str | None], None] = lambda message: None
    """Called with what the source waits for, and with None when it goes on."""


class PluginFeed:
    """Leads a plugin through its life, and keeps the rows of the last epoch until the next one."""

    def __init__(
        self,
        kind: type[SourcePlugin],
        options: Options,
        *,
        name: str,
        schema: pa.Schema,
        batch_size: int | None,
        poll_interval_ms: int,
        side: Mapping[str, SideStore],
        node: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`name` is that of the plugin; `node` and `labels` are those of the node that it is in a pipeline."""
        self.id = secrets.token_hex(8)
        self.name = name
        self.node = node
        self.labels = dict(labels or {})
        self._kind = kind
        self._options = options
        self._schema = schema
        self._batch_size = batch_size
        self._poll_seconds = poll_interval_ms / 1000
        self._side = dict(side)
        self._lock = threading.RLock()
        self._run: FeedRun | None = None
        self._plugin: SourcePlugin | None = None
        self._epoch: int | None = None
        self._position: Offset | None = None
        """The offset that Spark knows; the plugin may be further, behind rows that it left out."""
        self._cursor: Any = None
        self._rows: _EpochBuffer | None = None
        self._outage: float | None = None
        self._failures = 0
        self.failure: PenstockError | None = None
        """The error of the plugin that ended the query."""

    def open(self, run: FeedRun) -> None:
        """Called when a query starts, and when it begins again."""
        with self._lock:
            if self._run is not None and self._run.query != run.query:
                raise ConfigError(
                    f"the rows of the plugin {self.name} are read by the query '{self._run.name}' already",
                    code="PLUGIN_SOURCE_SHARED",
                    hint="make another stream of the source for another query",
                )
            self._run = run
            self.failure = None
            for side in self._side.values():
                side.close()

    def marker(self, epoch: int) -> None:
        """Called when the rows of an epoch are written, before it is committed."""
        with self._lock:
            if self._run is not None:
                for side in self._side.values():
                    side.store(self._run.target, epoch)
            if self._plugin is not None:
                self._epoch = epoch
                try:
                    self._plugin.process_checkpoint_marker(epoch)
                finally:
                    self._epoch = None

    def finalize(self, epoch: int) -> None:
        """Called when an epoch does not come again."""
        with self._lock:
            if self._plugin is not None:
                self._plugin.process_checkpoint_finalizer(epoch)
            for side in self._side.values():
                side.finalize(epoch)

    def close(self) -> None:
        """Called after the last epoch, also after an error; `open` may come again."""
        with self._lock:
            self._run = None
            try:
                self._end()
            finally:
                for side in self._side.values():
                    side.close()

    def begin(self) -> None:
        """A process of Spark's begins to read: the plugin begins its life."""
        with self._lock:
            self._end()
            # The epoch that was cut short is read again, with its rows for side outputs.
            for side in self._side.values():
                side.discard()
            run = self._run or FeedRun("none", self.name, {}, ends=self._kind.bounded)
            context = PluginContext(
                query=run.query,
                name=run.name,
                mode="append",
                schema=self._schema,
                labels=dict(run.labels),
                current=lambda: self._epoch,
                memory=run.state if run.state is not None else TransientValues(),
                side=self._side_output,
            )
            plugin = self._kind(self._options)
            self._plugin = plugin
            self._position = self._outage = self._cursor = None
            self._failures = 0
            plugin.initialize(context)

    def initial(self) -> Offset:
        """The offset of a query that has none yet."""
        with self._lock:
            self._position = dict(FIRST)
            return FIRST

    def latest(self) -> Offset:
        """Read ahead, and return the offset behind the rows."""
        with self._lock:
            # A query that goes on has planned its last epoch again before it asks for a new one.
            start = self._position or self.initial()
            run = self._run
            rows = self._all(start) if run is not None and run.ends else self._some(start)
            if rows.count:
                self._hold(rows)
                self._position = {"at": self._cursor, "rows": start["rows"] + rows.count}
                return self._position
        # What stands still here waits without the lock.
        time.sleep(self._pause())
        return start

    def plan(self, start: Offset, end: Offset) -> bool:
        """Take note that Spark reads a range; False when it is empty."""
        with self._lock:
            if self._position is None or self._position["rows"] < end["rows"]:
                self._position, self._cursor = end, end["at"]
            return bool(start["rows"] != end["rows"])

    def rows(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range: those that were read ahead, or read again after a restart."""
        with self._lock:
            count = end["rows"] - start["rows"]
            if self._rows is None or self._rows.start != start["rows"] or self._rows.count != count:
                self._hold(self._again(start, count))
            rows = self._rows
        assert rows is not None
        return rows.batches()

    def _some(self, start: Offset) -> _EpochBuffer:
        plugin = self._living()
        rows = _EpochBuffer(start["rows"], self._schema)
        self._cursor = self._read_into(
            rows, self._cursor if self._cursor is not None else start["at"], self._limit(plugin)
        )
        return rows

    def _all(self, start: Offset) -> _EpochBuffer:
        """All rows that are there, on disk beyond the first ones."""
        plugin = self._living()
        rows = _EpochBuffer(start["rows"], self._schema)
        at = self._cursor if self._cursor is not None else start["at"]
        while True:
            before = rows.count
            at = self._read_into(rows, at, self._limit(plugin))
            if rows.count == before:
                self._cursor = at
                return rows
            rows.to_disk()

    def _again(self, start: Offset, count: int) -> _EpochBuffer:
        rows, at = _EpochBuffer(start["rows"], self._schema), start["at"]
        while rows.count < count:
            before = rows.count
            at = self._read_into(rows, at, count - before)
            if self._outage is not None:
                time.sleep(self._pause())
            elif not before < rows.count <= count:
                raise self._noted(
                    StateError(
                        f"the plugin {self.name} gives {rows.count} rows again, and before the restart it gave {count}",
                        code="PLUGIN_REPLAY",
                        hint="read(offset, limit) must give the same rows for the same offset and limit; what "
                        "cannot be read twice "
                        "must be kept in context.state until process_checkpoint_finalizer",
                    )
                )
        return rows

    def _read_into(self, rows: _EpochBuffer, at: Any, limit: int) -> Any:
        """Read once, and return the plugin's offset behind the rows."""
        where = f"the plugin {self.name}"
        try:
            answer = self._living().read(at, limit)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise DataError(
                    f"{where} gave {type(answer).__name__}, and read returns (batches, offset)",
                    code="PLUGIN_READ",
                )
            batches, after = answer
            for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
                rows.add(conformed(batch, self._schema, where=where))
            _require_json(after, where)
        except ConnectorError as error:
            if not error.retryable or rows.count or not self._goes_on(error):
                raise self._noted(error) from None
            return at
        except PenstockError as error:
            raise self._noted(error) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise self._noted(
                DataError(
                    f"{where} failed: {reason}",
                    code="PLUGIN_READ",
                    hint="the epoch comes again when the query is started again",
                )
            ) from error
        self._resumed()
        return after

    def _goes_on(self, error: ConnectorError) -> bool:
        """Whether to ask again later."""
        now = time.monotonic()
        if self._outage is None:
            self._outage = now
        self._failures += 1
        if now - self._outage > LONGEST_OUTAGE:
            return False
        if self._run is not None:
            self._run.waiting(
                f"waiting for the plugin {self.name}: {error.message} (attempt {self._failures})"
            )
        return True

    def _resumed(self) -> None:
        if self._outage is not None and self._run is not None:
            self._run.waiting(None)
        self._outage, self._failures = None, 0

    def _pause(self) -> float:
        if self._outage is None:
            return self._poll_seconds
        return _PAUSES[min(self._failures, len(_PAUSES)) - 1]

    def _limit(self, plugin: SourcePlugin) -> int:
        return self._batch_size or plugin.batch_size

    def _living(self) -> SourcePlugin:
        if self._plugin is None:
            raise InternalError("the source was closed", code="PLUGIN_CLOSED")
        return self._plugin

    def _noted(self, error: PenstockError) -> PenstockError:
        self.failure = error
        return error

    def _end(self) -> None:
        plugin, self._plugin = self._plugin, None
        self._hold(None)
        if plugin is not None:
            plugin.terminate()

    def _hold(self, rows: _EpochBuffer | None) -> None:
        """Keep the rows of an epoch instead of those of the one before."""
        before, self._rows = self._rows, rows
        if before is not None:
            before.close()

    def _side_output(self, name: str) -> SideOutput:
        if name not in self._side:
            raise ConfigError(
                f"the source {self.name} has rows for a side output '{name}', and the query does not say where they go",
                code="STREAM_OPTION_MISSING",
                hint=f"add side_outputs: {{{name}: {{type: file, path: {name}/}}}} in the pipeline",
            )
        return self._side[name]


class _EpochBuffer:
    """The rows of one epoch, in memory or in a temporary file."""

    def __init__(self, start: int, schema: pa.Schema) -> None:
        self.start = start
        self.count = 0
        self._schema = schema
        self._memory: list[pa.RecordBatch] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[Path] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows behind the others."""
        if batch.num_rows:
            self._memory.append(batch)
            self.count += batch.num_rows

    def to_disk(self) -> None:
        """Write what is in memory to a file."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-source-")
        path = Path(self._folder.name) / f"{len(self._files)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self._schema) as writer:
            for batch in self._memory:
                writer.write_batch(batch)
        self._files.append(path)
        self._memory = []

    def close(self) -> None:
        """Remove what is on disk."""
        if self._folder is not None:
            self._folder.cleanup()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        for path in self._files:
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
                yield from reader
        yield from self._memory


class FeedServer:
    """Answers Spark's processes; one for all feeds of this process."""

    def __init__(self, host: str) -> None:
        self.key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), backlog=64, authkey=self.key)
        self._feeds: WeakValueDictionary[str, PluginFeed] = WeakValueDictionary()
        self._lasting_feeds: list[PluginFeed] = []
        threading.Thread(target=self._accept, name="penstock source plugins", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        address: Any = self._listener.address
        return int(address[1])

    def add(self, feed: PluginFeed, *, keep: bool) -> None:
        """Let Spark's processes read a feed: until the process ends, or as long as somebody else has it."""
        self._feeds[feed.id] = feed
        if keep:
            self._lasting_feeds.append(feed)

    def find(self, name: str) -> PluginFeed | None:
        """A feed by its id."""
        return self._feeds.get(name)

    def _accept(self) -> None:
        while True:
            try:
                caller = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()
            except Exception:
                # A caller without the key, or one that is gone already, is no reason to stop. Without files to open
                # every call fails at once.
                time.sleep(ACCEPT_PAUSE)

    def _serve(self, caller: Connection) -> None:
        with caller, contextlib.suppress(EOFError, OSError):
            request = json.loads(caller.recv_bytes())
            feed = self._feeds.get(request["feed"])
            while True:
                try:
                    if feed is None:
                        raise InternalError("no such source: its process has ended", code="PLUGIN_CLOSED")
                    for answer in _answers(feed, request):
                        caller.send_bytes(answer)
                except PenstockError as error:
                    _send_error(caller, error.message)
                except Exception as error:
                    _send_error(caller, f"{type(error).__name__}: {error}")
                request = json.loads(caller.recv_bytes())


def _send_error(caller: Connection, message: str) -> None:
    caller.send_bytes(b"E" + message.encode())


def _answers(feed: PluginFeed, request: Mapping[str, Any]) -> Iterable[bytes]:
    """The messages that answer a request: J and JSON, B and a stream of Arrow, E and an error."""
    match request["ask"]:
        case "begin":
            feed.begin()
            yield b"Jnull"
        case "initial":
            yield b"J" + json.dumps(feed.initial()).encode()
        case "latest":
            yield b"J" + json.dumps(feed.latest()).encode()
        case "plan":
            yield b"J" + json.dumps(feed.plan(request["start"], request["end"])).encode()
        case "rows":
            for batch in feed.rows(request["start"], request["end"]):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                yield b"B" + sink.getvalue()
            yield b"Jnull"
        case other:
            raise InternalError(f"no such request: {other}")


def _require_json(offset: Any, where: str) -> None:
    try:
        json.dumps(offset)
    except TypeError as error:
        raise DataError(
            f"{where} gave an offset that JSON cannot say: {error}",
            code="PLUGIN_READ",
            hint="use numbers, texts, lists and dictionaries",
        ) from None


_servers: dict[str, FeedServer] = {}
_starting = threading.Lock()


def server(host: str) -> FeedServer:
    """Return the server of this process on an address, started when it is first needed."""
    with _starting:
        if host not in _servers:
            _servers[host] = FeedServer(host)
        return _servers[host]


def find_feed(name: str) -> PluginFeed | None:
    """Return a feed of this process by its id."""
    with _starting:
        servers = list(_servers.values())
    return next((feed for feed_server in servers if (feed := feed_server.find(name)) is not None), None)
