"""The session: where every use of penstock begins."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from penstock import config
from penstock.data.byte_size import byte_size
from penstock.data.duration import milliseconds
from penstock.engine.files import File, register_views, resolve, resolve_files, spans_lines
from penstock.engine.operation import DEFAULT_TTL, Operation, OperationRegistry
from penstock.errors import ConfigError, PenstockError, QueryTimeout, StateError
from penstock.registry import Registry
from penstock.spark import arrow, reader
from penstock.spark import connectors as connectors_of
from penstock.spark import errors as spark_errors
from penstock.spark.boot import session as spark_session
from penstock.spark.plugin_function import register_installed
from penstock.spark.results import SparkExecution
from penstock.spark.stages import Stages, stages_of
from penstock.spark.tagged_call import TaggedCall
from penstock.sql.files import FileReference
from penstock.sql.parse import is_of_flows, parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.reader import Paths
    from penstock.streaming.queries import Queries
    from penstock.streaming.query import StreamingQuery
    from penstock.streaming.reader import StreamReader
    from penstock.streaming.stream import Stream

T = TypeVar("T")

# A flow plans its views in a session, and a session has a flow for SQL: it is loaded by its name, so that imports go one way.
_PARTS = Registry(
    "part of a session",
    {
        "flow": "penstock.engine.session_flow:SessionFlow",
        "statements": "penstock.engine.statement:run",
    },
)


class Session:
    """Batch SQL, streams and incremental views over one Spark.

    >>> with Session.embedded() as session:                # doctest: +SKIP
    ...     session.sql("SELECT 1 AS one").show()
    """

    def __init__(self, spark: SparkSession, settings: config.Settings) -> None:
        self._spark = spark
        register_installed(spark)
        self._lock = threading.Lock()
        self._calls: set[TaggedCall[Any]] = set()
        # The last query, so that it can be explained after its run.
        self._latest: tuple[str, DataFrame | None] = ("", None)
        self._stopping = self._stopped = False
        self.settings = settings
        self.operation_registry = OperationRegistry()
        self.id = uuid.uuid4().hex[:12]
        self._queries: Queries | None = None
        self._flow: Any = None
        self._flow_lock = threading.RLock()

    @classmethod
    def embedded(
        cls,
        *,
        conf: Mapping[str, Any] | None = None,
        master: str | None = None,
        connectors: tuple[str, ...] = (),
        catalogs: Mapping[str, Mapping[str, Any]] | None = None,
        flow: str | os.PathLike[str] | None = None,
        flow_memory: int | str | None = None,
    ) -> Self:
        """Start Spark in this process, on all its cores unless `master` says otherwise.

        `flow` is the flow directory of `session.flow`: what SQL makes in it is there in the next session. State of it
        beyond `flow_memory` bytes (or "2 GB") lies in scratch files.
        """
        settings = config.load().with_arguments(
            conf=conf,
            master=master,
            connectors=connectors,
            catalogs=catalogs,
            flow=flow,
            flow_memory=flow_memory,
        )
        session = cls.of_settings(settings)
        if flow is not None:
            try:
                _ = session.flow  # a directory that cannot be opened is an error now
            except BaseException:
                session.stop()
                raise
        return session

    @classmethod
    def of_settings(cls, settings: config.Settings) -> Self:
        """Start Spark in this process, by settings that were read before."""
        if settings.flow_memory is not None:
            byte_size(settings.flow_memory, what="flow_memory")  # what is no size is said before Spark starts
        parts = connectors_of.session_parts(settings)
        spark = spark_session.start(settings, jars=parts.jars, conf=parts.conf)
        spark_errors.quiet()
        return cls(spark, settings)

    @classmethod
    def over(cls, spark: SparkSession) -> Self:
        """Return a session over a PySpark session that somebody else has started, and ends."""
        return cls(spark, config.load())

    @classmethod
    def from_env(cls) -> Self:
        """Start the session that the environment asks for: embedded, unless PENSTOCK_URL names a daemon."""
        settings = config.load()
        if settings.url:
            raise ConfigError(
                f"PENSTOCK_URL is {settings.url}, but this version has no remote sessions",
                code="CONFIG_REMOTE",
                hint="unset PENSTOCK_URL to run embedded",
            )
        return cls.of_settings(settings)

    @property
    def spark(self) -> SparkSession:
        """The PySpark session."""
        if self._stopped:
            raise StateError(
                "this session is stopped",
                code="SESSION_STOPPED",
                hint="start a new one with Session.embedded()",
            )
        return self._spark

    def sql(self, query: str, args: dict[str, Any] | list[Any] | None = None) -> DataFrame:
        """Return a query as a PySpark DataFrame; a statement that changes something runs at once.

        `args` are the values of named (`:name`) or positional (`?`) parameters. A file may stand in the place of a table:
        `SELECT * FROM 'data/orders.parquet'`. Sources and incremental views are tables; a query shows the tick at which it runs.
        """
        spark = self.spark
        statement = parse(query)
        if self.settings.flow is not None or self._flow is not None or is_of_flows(statement):
            frame = _PARTS.load("statements")(self, statement, query, args)
            if frame is not None:
                return cast("DataFrame", frame)
        rewritten, files = resolve_files(query)
        self._with_connector(lambda: register_views(spark, rewritten, files))
        frame = self._with_connector(lambda: spark.sql(rewritten.sql, args=args), query)
        with self._lock:
            self._latest = (query, frame)
        return frame

    @property
    def flow(self) -> Any:
        """The `IncrementalFlow` that SQL uses; with a flow directory (`flow=`, `PENSTOCK_FLOW`) it outlives the session."""
        with self._flow_lock:
            if self._flow is None:
                _ = self.spark  # refuses when the session is stopped
                self._flow = _PARTS.load("flow")(
                    self, path=self.settings.flow, memory=self.settings.flow_memory
                )
            return self._flow

    def wait_for_jobs(self) -> None:
        """Wait for the end of views that REFRESH ... EVERY refreshes; raises why the first one has ended."""
        if self._flow is not None:
            self._flow.wait_for_jobs()

    @property
    def last_step(self) -> Any:
        """The `StepSummary` of the last statement that was a tick; None when there was none."""
        return None if self._flow is None else self._flow.last_step

    def sql_with_timeout(
        self,
        query: str,
        timeout: int | str | timedelta,
        args: dict[str, Any] | list[Any] | None = None,
    ) -> pa.Table:
        """Return a query's rows; after `timeout` (milliseconds, "30 seconds") its jobs are ended and `QueryTimeout` raised."""
        limit = milliseconds(timeout, what="timeout")
        call = TaggedCall(self.spark, lambda: self._collect(query, args), tag=f"penstock-{uuid.uuid4().hex}")
        with self._lock:
            self._calls.add(call)
        call.start()
        try:
            finished = call.wait(limit / 1000)
        except BaseException:  # Ctrl-C: the query must not outlive the one who waits for it
            call.cancel()
            raise
        finally:
            with self._lock:
                self._calls.discard(call)
        if not finished:
            call.cancel()
            raise QueryTimeout(
                f"the query ran longer than {_spoken(limit)} and was cancelled",
                hint="give it more time, or less to do; session.submit runs it without a limit",
            )
        return call.value()

    def submit(
        self,
        query: str | DataFrame,
        *,
        args: dict[str, Any] | list[Any] | None = None,
        ttl: int | str | timedelta = DEFAULT_TTL,
    ) -> Operation:
        """Run a query, or a DataFrame, in the background; its result is fetched partition by partition.

        The result stays with Spark until nobody has used it for `ttl` (milliseconds, "1 hour").
        """
        spark = self.spark
        text = query if isinstance(query, str) else None
        operation_id = uuid.uuid4().hex
        execution = SparkExecution(
            spark,
            (lambda: self.sql(query, args)) if isinstance(query, str) else (lambda: query),
            tag=f"penstock-op-{operation_id}",
            failed=lambda error: self._translated(error, text, execution.frame),
        )
        operation = Operation(
            execution, sql=text, ttl=milliseconds(ttl, what="ttl"), operation_id=operation_id
        )
        self.operation_registry.add(operation)
        return operation

    def explain_stages(self, query: str | DataFrame | Operation) -> Stages:
        """Return the stages of a query, a DataFrame or an operation; `print` draws them.

        Of what has run already, these are the stages as they ran, with the executors that computed their partitions.
        """
        _ = self.spark  # refuses when the session is stopped
        frame, result_rdd = self._explained(query)
        text = query if isinstance(query, str) else None
        return self._guard(lambda: stages_of(frame, result_rdd=result_rdd), text, frame)

    def read_parquet(self, path: Paths, *, schema: Any = None, **options: Any) -> DataFrame:
        """Read Parquet files: a file, a folder, a pattern or several of them; `options` are Spark's."""
        return self._read("parquet", path, schema=schema, **options)

    def read_csv(self, path: Paths, *, schema: Any = None, **options: Any) -> DataFrame:
        """Read CSV files with a header, and infer the types, unless a schema or options say otherwise."""
        return self._read("csv", path, schema=schema, **options)

    def read_json(self, path: Paths, *, schema: Any = None, **options: Any) -> DataFrame:
        """Read JSON files: an object per line, or one document over several lines."""
        if not {"multiline", "multiLine"} & options.keys() and _one_document(path):
            options["multiLine"] = True
        return self._read("json", path, schema=schema, **options)

    def read_avro(self, path: Paths, *, schema: Any = None, **options: Any) -> DataFrame:
        """Read Avro files; the connector is installed when it is not there yet."""
        return self._read("avro", path, schema=schema, **options)

    def read_iceberg(self, table: str | os.PathLike[str], **options: Any) -> DataFrame:
        """Read an Iceberg table by its name (`lake.db.orders`) or its path."""
        spark = self.spark
        name = os.fspath(table)
        named = "/" not in name
        location = name if named else reader.absolute(name)
        return self._with_connector(
            lambda: (
                spark.read.options(**options).table(location)
                if named
                else spark.read.format("iceberg").options(**options).load(location)
            )
        )

    def register_table(self, name: str, rows: Any, *, schema: Any = None) -> None:
        """Make rows, or the files at a path, a table for SQL under a name; an older one of that name is replaced.

        Rows are an Arrow table or batch, Polars, pandas, a PySpark DataFrame, anything with `__arrow_c_stream__`, or a list
        of dicts. A path's extension says the format.
        """
        spark = self.spark
        if (self.settings.flow is not None or self._flow is not None) and self.flow.spelled(name):
            raise ConfigError(
                f"'{name}' is a source or an incremental view already",
                code="FLOW_NAME_TAKEN",
                hint="choose another name, or drop it first",
            )
        if isinstance(rows, str | os.PathLike):
            frame = self._of_path(os.fspath(rows), schema)
        else:
            frame = self._guard(lambda: reader.frame_of_rows(spark, rows, schema))
        self._guard(lambda: frame.createOrReplaceTempView(name))

    @property
    def queries(self) -> Queries:
        """The streaming queries of this session; what they need is imported when the first is asked for."""
        from penstock.streaming.queries import Queries

        with self._lock:
            if self._queries is None:
                self._queries = Queries(self.settings, session=self.id)
            return self._queries

    @property
    def read_stream(self) -> StreamReader:
        """Read files, topics and tables as streams."""
        from penstock.streaming.reader import StreamReader

        return StreamReader(self.spark, self.queries, self._with_connector)

    def stream(self, rows: Any, *, schema: Any = None) -> Stream:
        """Make a stream of a file, a folder, a table or a streaming DataFrame; a batch DataFrame, or rows, give theirs once."""
        from penstock.spark.micro_batch import frames
        from penstock.streaming.stream import Stream

        spark = self.spark
        if isinstance(rows, str | os.PathLike):
            return self._stream_of_name(os.fspath(rows), schema)
        frame = self._guard(lambda: reader.frame_of_rows(spark, rows, schema))
        if not frame.isStreaming:
            frame = self._guard(lambda: frames.of_batch(frame, self.queries.temporary_folder()))
        return Stream(self.queries, frame)

    def state(
        self,
        query: StreamingQuery | str | os.PathLike[str],
        operator: int = 0,
        *,
        variable: str | None = None,
    ) -> DataFrame:
        """Return what a query keeps, one row per key, from its handle or its checkpoint; `operator` counts from the source.

        A processor of `transform_with_state` keeps variables; `variable` names one when it has several.
        """
        from penstock.spark.micro_batch import checkpoint

        spark = self.spark
        location = reader.absolute(query) if isinstance(query, str | os.PathLike) else query.checkpoint
        if location is None:
            raise StateError(
                f"the query '{query}' has no checkpoint to read its state from",
                code="STREAM_STATE_MISSING",
                hint='start it with .option("checkpoint.location", "path/")',
            )
        return self._guard(lambda: checkpoint.state(spark, location, operator, variable))

    def stop(self) -> None:
        """End what this session started: its queries, then Spark; a second call does nothing."""
        if self._flow is not None:
            self._flow.stop_jobs()
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            queries = self._queries
        try:
            if queries is not None:
                queries.close()
            if self._flow is not None:
                self._flow.close()  # sinks of views may need Spark to hand over the last ticks
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._stopped = True
            self._latest = ("", None)
            calls, self._calls = self._calls, set()
        self.operation_registry.close()
        for call in calls:
            call.cancel()
        spark_session.stop(self._spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<penstock session {self.id}{', stopped' if self._stopped else ''}>"

    def _explained(self, query: str | DataFrame | Operation) -> tuple[DataFrame, int | None]:
        """The frame to explain, as it ran if it ran, and the RDD of its result if that is known."""
        if isinstance(query, Operation):
            plan = _plan_of(query)
            if plan is None:
                raise StateError(
                    f"operation {query.id} has no plan to show: it is {query.state}",
                    code="OPERATION_WITHOUT_PLAN",
                    hint="explain its query instead",
                )
            return plan
        if not isinstance(query, str):
            return query, None
        for operation in reversed(self.operation_registry.list()):
            if operation.sql == query and (plan := _plan_of(operation)) is not None:
                return plan
        with self._lock:
            text, frame = self._latest
        return (frame if frame is not None and text == query else self.sql(query)), None

    def _collect(self, query: str, args: dict[str, Any] | list[Any] | None) -> pa.Table:
        frame = self.sql(query, args)
        return self._guard(lambda: arrow.to_arrow(frame), query, frame)

    def _read(self, form: str, path: Paths, **options: Any) -> DataFrame:
        spark = self.spark
        return self._with_connector(lambda: reader.read(spark, form, path, **options))

    def _stream_of_name(self, name: str, schema: Any) -> Stream:
        """A path, unless only a table has this name."""
        from penstock.spark.micro_batch import frames

        spark = self.spark
        path = reader.is_uri(name) or "/" in name or os.path.exists(os.path.expanduser(name))
        if not path and self._guard(lambda: spark.catalog.tableExists(name)):
            return self.stream(self._with_connector(lambda: frames.of_table(spark, name)))
        file = self._file(name)
        return self.read_stream.options(**file.options).schema(schema).format(file.format).load(name)

    def _of_path(self, path: str, schema: Any) -> DataFrame:
        file = self._file(path)
        return self._read(file.format, file.path, schema=schema, **file.options)

    def _file(self, path: str) -> File:
        try:
            return resolve(FileReference(path, 0, len(path), ""), path)
        except PenstockError as error:
            error.where = None  # a place in a query, and here is none
            raise

    def _with_connector(self, action: Callable[[], T], query: str | None = None) -> T:
        """Do something that may need a connector which is not here yet: install it, and do it again."""
        try:
            return action()
        except PenstockError:
            raise
        except Exception as error:
            name = spark_errors.missing_connector_of(error)
            if name is None or connectors_of.ADDITIONS[name].extension is not None:
                raise self._translated(error, query) from None
        connectors_of.add_to_running(self.spark, name, self.settings)
        return self._guard(action, query)

    def _guard(self, action: Callable[[], T], query: str | None = None, frame: DataFrame | None = None) -> T:
        try:
            return action()
        except PenstockError:
            raise
        except Exception as error:
            raise self._translated(error, query, frame) from None

    def _translated(
        self, error: BaseException, query: str | None, frame: DataFrame | None = None
    ) -> PenstockError:
        plan = None if frame is None else spark_errors.analyzed(frame)
        return spark_errors.translate(error, sql=query, spark=self._spark, plan=plan)


def _plan_of(operation: Operation) -> tuple[DataFrame, int | None] | None:
    execution = operation.execution
    if not isinstance(execution, SparkExecution) or execution.frame is None:
        return None
    return execution.frame, execution.result_rdd


def _one_document(path: Paths) -> bool:
    first = path if isinstance(path, str | os.PathLike) else next(iter(path), "")
    return spans_lines(os.path.expanduser(os.fspath(first)))


def _spoken(limit: int) -> str:
    return f"{limit / 1000:g} s" if limit >= 1000 else f"{limit} ms"


def settings_of(session: Session | None) -> config.Settings:
    """Return the settings of a session, or those that a new one has, which are read now."""
    return config.load() if session is None else session.settings
