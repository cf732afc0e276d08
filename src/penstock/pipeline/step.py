"""The steps of a group of nodes: each computes the rows of one node or more from those of others, epoch by epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.data.operation import OPERATION
from penstock.errors import ConfigError, PenstockError, SqlError, suggest
from penstock.pipeline.node import RowErrors
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.transforms.dynamic_table import DynamicTableNode
from penstock.pipeline.transforms.sql import SEVERAL_INPUTS, SqlNode
from penstock.spark.errors import located
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import failing_rows, stateless
from penstock.spark.no_rows import no_rows
from penstock.sql.relation import renamed
from penstock.transforms import operations
from penstock.transforms.base import ERROR, INPUT, TransformContext
from penstock.transforms.failing_query import failed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.pipeline.spec import NodeSpec
    from penstock.plugin import Namespace
    from penstock.sinks.base import Target
    from penstock.transforms.base import Transform


class Step(ABC):
    """Computes nodes; all methods are called from one thread at a time."""

    nodes: tuple[str, ...]
    """The nodes that it computes."""
    inputs: tuple[str, ...]
    """The nodes that it reads."""
    place: str | None = None
    """Where the node is in the file, for errors that come while its rows are read."""
    level: int = 0
    """Of views, the number of their flow, which counts from 1; 0 for all other steps."""
    reads_now: bool = False
    """Whether `evaluate` reads the rows of its inputs, and does not only plan it."""
    is_volatile: bool = False
    """Whether its rows depend on the time or on random values; known after `outputs`."""
    separates: str | None = None
    """The node whose rows `separated` tells apart, when some of them may fail in a step that takes its rows together."""

    @abstractmethod
    def outputs(self) -> Mapping[str, NodeOutput]:
        """What its nodes give; planned without a row, raises what Spark refuses."""

    def check(self) -> None:  # noqa: B027  # most have nothing to try
        """Try connections, change nothing."""

    def open(self, target: Target) -> None:  # noqa: B027
        """Called before the first epoch of each run; `target` is the query that runs the group."""

    @abstractmethod
    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        """Return the rows of its nodes in an epoch; a repeated epoch gives the same rows again."""

    def separated(
        self, frames: Mapping[str, DataFrame], fixed: Callable[[DataFrame], DataFrame]
    ) -> DataFrame | None:
        """Return the rows of the node `separates`, in which those have `_error` and `_input` that it cannot take;
        None when it takes all of them.

        Their frame is one that Spark has persisted; it is read now. `fixed` makes of a query what it was when the
        epoch came first.
        """
        return None

    def commit(self, epoch: int) -> None:  # noqa: B027
        """Called when all sinks have written an epoch, before its offsets are noted. Raising fails the epoch."""

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Called after an epoch is written: rows that nodes counted, by node and name."""
        return {}

    def failure(self, error: BaseException) -> PenstockError | None:
        """Called when rows could not be written: the error for the user, when it comes from this step; else None."""
        return None

    def finalize(self, epoch: int) -> None:  # noqa: B027
        """Called once per epoch when it cannot come again."""

    def close(self) -> None:  # noqa: B027
        """Called after the last epoch, also after an error."""


class SqlStep(Step):
    """One query without memory over rows of earlier nodes, planned anew for every epoch."""

    def __init__(self, node: NodeSpec, spark: SparkSession, inputs: Mapping[str, NodeOutput]) -> None:
        assert isinstance(node.model, SqlNode | DynamicTableNode)
        assert node.model.sql is not None, "a step for a query has one"
        self._node = node
        self._spark = spark
        self._sql = node.model.sql
        self._keys = tuple(node.model.primary_key)
        self._inputs = inputs
        self._names = view_names(inputs)
        self.nodes = (node.name,)
        # The rows that come stand before the tables that they are joined with.
        self.inputs = tuple(sorted(inputs, key=lambda name: inputs[name].static))
        if isinstance(node.model, RowErrors) and node.model.on_error != "fail":
            self._refuse_several_inputs()
            self.separates = self.inputs[0]
        changing = [name for name, output in inputs.items() if output.operations]
        self._changing = changing[0] if changing else None
        if len(changing) > 1 or (changing and sum(not output.static for output in inputs.values()) > 1):
            raise ConfigError(
                f"'{node.name}' joins or unites rows that are updated and deleted "
                f"({', '.join(changing)}) with others, and sees one batch of each at a time",
                code="PIPELINE_SQL_OPERATIONS",
                where=str(node.place_of("sql")),
                hint="a `view` keeps such a result right: type: view",
            )
        weighted = [name for name, output in inputs.items() if output.weights]
        if weighted:
            raise ConfigError(
                f"'{node.name}' reads the changes of the view '{weighted[0]}', which has no primary key",
                code="PIPELINE_SQL_OPERATIONS",
                where=str(node.place_of("sql")),
                hint=f"give '{weighted[0]}' a primary_key",
            )

    def outputs(self) -> Mapping[str, NodeOutput]:
        frames = {
            name: stateless.empty_stream(self._spark, _without_operation(output))
            if not output.static
            else no_rows(self._spark, output.schema)
            for name, output in self._inputs.items()
        }
        with in_query_of(self._node, self._sql):
            planned = stateless.planned(lambda: self._query(self._spark, frames))
        if planned.schema is None or planned.memory is not None:
            raise SqlError(
                f"'{self._node.name}' has {planned.memory}: a `sql` node sees the rows of one batch at "
                "a time, so its result would depend on how rows fall into batches",
                code="PIPELINE_SQL_STATEFUL",
                where=str(self._node.place_of("sql")),
                hint="make it a view, which is kept right by what changed: type: view",
            )
        self.is_volatile = planned.is_volatile
        if self._changing is None:
            keys = self._checked_keys(planned.schema.names)
            self._refuse_inseparable()
            return {self._node.name: NodeOutput(planned.schema, keys)}
        with in_query_of(self._node, self._sql):
            empty = {name: no_rows(self._spark, output.schema) for name, output in self._inputs.items()}
            keys, lost = self._keys_of_changes(self._changing, empty)
            schema = self._plan(self._spark, empty).schema
        require_columns(self._node, keys, schema.names)
        self._refuse_inseparable()
        return {self._node.name: NodeOutput(schema, keys, lost_keys=lost)}

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        with in_query_of(self._node, self._sql):
            # Any other join than one with a broadcast would take rows of one key out of their order.
            inputs = {
                name: frames[name].hint("broadcast") if self._inputs[name].static else frames[name]
                for name in self.inputs
            }
            spark = next(
                (frames[name].sparkSession for name in self.inputs if not self._inputs[name].static),
                self._spark,
            )
            rows = self._plan(spark, inputs)
            # Otherwise it would depend on who reads it, and what of it, whether a row fails.
            return {self._node.name: rows if self.separates is None else failing_rows.evaluated(rows)}

    def separated(
        self, frames: Mapping[str, DataFrame], fixed: Callable[[DataFrame], DataFrame]
    ) -> DataFrame | None:
        assert self.separates is not None
        rows = frames[self.separates]
        with in_query_of(self._node, self._sql):
            query = fixed(self._over_leaf(rows.sparkSession, frames))
            keys = self._inputs[self.separates].operation_keys
            return failed_rows(failing_rows.numbered(rows), query, keys=keys)

    def _over_leaf(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The query over rows of which it can be told for which it fails."""
        inputs = {
            name: frames[name].hint("broadcast")
            if self._inputs[name].static
            else failing_rows.leaf(spark, self._inputs[name].schema)
            for name in self.inputs
        }
        return self._plan(spark, inputs)

    def _refuse_several_inputs(self) -> None:
        rows = [name for name in self.inputs if not self._inputs[name].static]
        if len(rows) != 1:
            raise on_error_refused(
                self._node,
                f"reads {', '.join(rows) or 'tables alone'}, and tells only rows of one node apart",
                hint=SEVERAL_INPUTS,
            )

    def _refuse_inseparable(self) -> None:
        """Refuse a query of which nobody can say for which rows it fails."""
        if self.separates is None:
            return
        frames = {
            name: failing_rows.leaf(self._spark, output.schema) for name, output in self._inputs.items()
        }
        changing = self._changing
        if changing is not None and self._origins(changing, frames) is None:
            raise on_error_refused(
                self._node,
                f"does more than project and filter rows of '{changing}', which are updated and "
                "deleted: it sees the newest row of each key alone",
                hint="compute what may fail in a `sql` node of its own, which projects and filters",
            )
        with in_query_of(self._node, self._sql):
            obstacle = failing_rows.obstacle(self._over_leaf(self._spark, frames))
        if obstacle is not None:
            raise on_error_refused(
                self._node,
                f"has {obstacle}, with which it cannot be told which row has failed",
                hint="compute what may fail in a `sql` node of its own, without that",
            )

    def _plan(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        changing = self._changing
        if changing is None:
            return self._query(spark, frames)
        return operations.through(
            stateless.of_session(spark, frames[changing]),
            lambda rows: self._query(spark, {**frames, changing: rows}),
            keys=self._inputs[changing].keys,
        )

    def _query(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        text = renamed(self._sql, {name.lower(): plain for name, plain in self._names.items()})
        return stateless.query(spark, text, {self._names[name]: frame for name, frame in frames.items()})

    def _checked_keys(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The key of the result: the one that the user gave, or that of its only input when it has those columns."""
        require_columns(self._node, self._keys, columns)
        streams = [output for output in self._inputs.values() if not output.static]
        inherited = streams[0].keys if len(streams) == 1 and set(streams[0].keys) <= set(columns) else ()
        return self._keys or inherited

    def _keys_of_changes(
        self, changing: str, frames: Mapping[str, DataFrame]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key of the result of a query over rows with operations, and the key of those rows where the result has lost it.

        Refuses a query whose result does not show which rows are gone.
        """
        keys, rows = self._inputs[changing].keys, frames[changing]
        origins = self._origins(changing, frames)
        if origins is not None:
            return self._keys_of_columns(changing, origins)

        def query(rows: DataFrame) -> DataFrame:
            return self._query(self._spark, {**frames, changing: rows})

        has_same_key = keys and set(self._keys or keys) == set(keys)
        if not has_same_key or not operations.keeps_keys(rows, query, keys=keys):
            by = f"by their key ({', '.join(keys)})" if keys else "and have no primary_key"
            must = "selects the columns of that key unchanged" if keys else "only selects and filters columns"
            raise ConfigError(
                f"rows of '{changing}' are updated and deleted {by}, so a query over them {must}: '{self._node.name}' does not",
                code="PIPELINE_SQL_OPERATIONS",
                where=str(self._node.place_of("sql")),
                hint=f"select {', '.join(keys) or 'columns alone'} unchanged, or make it a view: type: view",
            )
        return self._keys or keys, ()

    def _origins(
        self, changing: str, frames: Mapping[str, DataFrame]
    ) -> Mapping[str, frozenset[str] | None] | None:
        """What the columns of the result are made of, when the query projects and filters rows with operations, and
        does nothing else."""
        return operations.origins(
            frames[changing], lambda rows: self._query(self._spark, {**frames, changing: rows})
        )

    def _keys_of_columns(
        self, changing: str, origins: Mapping[str, frozenset[str] | None]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key of a query that projects and filters: columns that are made of the key of its rows, and of nothing else."""
        changes = self._inputs[changing]
        keys = changes.operation_keys
        require_columns(self._node, self._keys, list(origins))
        if not keys:
            return self._keys, ()
        named = self._keys or (keys if origins.keys() >= set(keys) else ())
        parts = [part for name in named if (part := origins[name]) is not None]
        if len(parts) == len(named) and changes.is_keyed_by(frozenset[str]().union(*parts)):
            return named, ()
        if self._keys:
            raise other_key(self._node, self._keys, changes, reads=changing)
        renamed_keys = [
            [name for name, part in origins.items() if part == frozenset({key})] for key in changes.keys
        ]
        if not changes.lost_keys and all(len(names) == 1 for names in renamed_keys):
            return tuple(name for [name] in renamed_keys), ()
        return (), keys


class TransformStep(Step):
    """A `Transform` over the rows of one node; rows that fail come out with `_error`."""

    def __init__(
        self,
        node: NodeSpec,
        transform: Transform,
        spark: SparkSession,
        inputs: Mapping[str, NodeOutput],
        context: TransformContext,
    ) -> None:
        """`inputs` has the one node that it reads, by its name as declared."""
        self._node = node
        self._transform = transform
        self._spark = spark
        [self._input] = inputs.values()
        self._context = context
        self._keys = tuple(getattr(node.model, "primary_key", ()))
        self.place = str(node.place)
        self.nodes, self.inputs = (node.name,), tuple(inputs)

    def outputs(self) -> Mapping[str, NodeOutput]:
        with translated(where=str(self._node.place)):
            empty = no_rows(self._spark, self._input.schema)
            rows = self._transform.apply(empty, self._context).drop(ERROR, INPUT)
        self.is_volatile = stateless.is_volatile(rows)
        require_columns(self._node, self._keys, rows.columns)
        if self._keys and self._transform.keeps_columns and not self._input.is_keyed_by(self._keys):
            raise other_key(self._node, self._keys, self._input, reads=self.inputs[0])
        inherited = self._input.keys if set(self._input.keys) <= set(rows.columns) else ()
        keys = self._keys or inherited
        return {self._node.name: NodeOutput(rows.schema, keys, lost_keys=self._input.lost_keys)}

    def check(self) -> None:
        with translated(where=str(self._node.place)):
            try:
                self._transform.check(self._context)
            finally:
                self._transform.close()

    def open(self, target: Target) -> None:
        state = node_values(target, self._node.name)
        self._context = self._context.running(target.query, state, target.status)
        with translated(where=str(self._node.place)):
            self._transform.open(self._context)

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        with translated(where=str(self._node.place)):
            self._transform.begin(epoch)
            try:
                return {self._node.name: self._transform.apply(frames[self.inputs[0]], self._context)}
            except PenstockError as error:
                # Of a transform that works on the driver, and takes its rows now.
                error.where = error.where or str(self._node.place)
                raise

    def commit(self, epoch: int) -> None:
        with translated(where=str(self._node.place)):
            self._transform.commit(epoch)

    def finalize(self, epoch: int) -> None:
        with translated(where=str(self._node.place)):
            self._transform.finalize(epoch)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {self._node.name: self._transform.counts()}

    def failure(self, error: BaseException) -> PenstockError | None:
        return self._transform.failure(error)

    def close(self) -> None:
        self._transform.close()


@contextmanager
def in_query_of(node: NodeSpec, sql: str) -> Iterator[None]:
    """Raise errors with the place of a node's query in its file before the position in the query."""
    try:
        with translated(sql=sql):
            yield
    except PenstockError as error:
        raise in_file(error, node) from None


def in_file(error: PenstockError, node: NodeSpec) -> PenstockError:
    """Return an error about the query of a node with the query's place in its file."""
    place = str(node.place_of("sql"))
    return error if (error.where or "").startswith(node.place.path) else located(error, place)


def on_error_refused(node: NodeSpec, why: str, *, hint: str) -> ConfigError:
    """The error of a query that cannot tell which of its rows fail."""
    return ConfigError(
        f"on_error of '{node.name}': it {why}",
        code="PIPELINE_ON_ERROR",
        where=str(node.place_of("on_error")),
        hint=hint,
    )


def view_names(inputs: Mapping[str, object]) -> dict[str, str]:
    """The names under which a query of Spark sees nodes: their own, unless they have characters that plain names do not have."""
    names: dict[str, str] = {}
    for name in inputs:
        plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
        plain = f"_{plain}" if plain[0].isdigit() else plain
        while plain.lower() in {other.lower() for other in names.values()}:
            plain += "_"
        names[name] = plain
    return names


def require_columns(node: NodeSpec, keys: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a primary key whose columns the node does not have."""
    for key in keys:
        if key not in columns:
            raise ConfigError(
                f"'{node.name}' has no column '{key}' for its primary_key",
                code="PIPELINE_KEY",
                where=str(node.place_of("primary_key")),
                hint=suggest(key, [name for name in columns if name != OPERATION], what="column"),
            )


def other_key(node: NodeSpec, keys: Sequence[str], output: NodeOutput, *, reads: str) -> ConfigError:
    """The error of a node with another key than that of the operations of the rows that it reads."""
    own = ", ".join(output.operation_keys)
    return ConfigError(
        f"'{node.name}' tells rows apart by {', '.join(keys)}, and the operations of '{reads}' are by {own}: "
        "a delete may have only that, and an update of a row does not say what it was before",
        code="PIPELINE_KEY",
        where=str(node.place_of("primary_key")),
        hint=f"name what {own} has become as the primary_key of '{reads}', or read a view with the other key: type: view"
        if output.lost_keys
        else f"use primary_key: {own}, or read a view with the other key: type: view",
    )


def node_values(target: Target, node: str) -> Namespace | None:
    """What a node remembers, apart from what others of its query do."""
    return None if target.state is None else target.state.within(node)


def _without_operation(output: NodeOutput) -> StructType:
    fields = [field for field in output.schema.fields if field.name != OPERATION]
    schema: StructType = type(output.schema)(fields)
    return schema
