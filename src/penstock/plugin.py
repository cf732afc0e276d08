"""What a plugin is: a class with options, and a life that follows the epochs of a query.

    class Lines(ps.SinkPlugin):
        class Options(ps.Options):
            path: str

        def initialize(self, context): ...
        def process_batch(self, batch): ...

A package offers it through an entry point in the group `penstock.sources`, `penstock.transforms` or `penstock.sinks`;
its name is what users write in `.format(...)` and behind `type:` in a pipeline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.errors import ConfigError, StateError, suggest
from penstock.options import Options
from penstock.registry import importing

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = [
    "KeyValues",
    "Options",
    "PluginContext",
    "SideOutput",
    "SinkPlugin",
    "SourcePlugin",
    "TransformPlugin",
    "TransientValues",
    "imported",
]


class KeyValues(Protocol):
    """What a plugin remembers from one start to the next: values that are bytes, or that JSON can say."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""

    def clear(self) -> None:
        """Forget all."""


class Namespace(KeyValues, Protocol):
    """Values with room for those of parts, such as the nodes of a pipeline."""

    def within(self, part: str) -> Namespace:
        """The values of a part, apart from those of others."""


class SideOutput(Protocol):
    """Rows that leave a plugin by another way."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Give rows away; they are stored with the epoch that runs."""


class TransientValues:
    """The values of a query without a name: they end with it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._parts: dict[str, TransientValues] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self._values[key] = value

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        self._values.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()
        for part in self._parts.values():
            part.clear()

    def within(self, part: str) -> TransientValues:
        """The values of a part, apart from those of others."""
        return self._parts.setdefault(part, TransientValues())


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin gets to know of the query it works for."""

    query: str
    """The query's id: the same after a restart from its checkpoint, another one without."""
    name: str
    mode: str
    """append, update or complete."""
    schema: pa.Schema
    """The columns of the batches that come in; of a source, of those that go out."""
    keys: tuple[str, ...] = ()
    operation: str | None = None
    """The column with what happened to each row, `i`, `u` or `d`; None where all rows are inserts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    partition: int | None = None
    """In a Spark task, the number of the partition; None on the driver."""
    current: Callable[[], int | None] = lambda: None
    memory: KeyValues | None = None
    side: Callable[[str], SideOutput] | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch that is being written; None between two of them."""
        return self.current()

    @property
    def state(self) -> KeyValues:
        """Values in the state backend, for a query that has a name; without a name they end with the query."""
        if self.memory is None:
            raise _only_on_the_driver("state")
        return self.memory

    def side_output(self, name: str) -> SideOutput:
        """A way out for other rows; the query says where it leads: `.option("side_output.NAME", {"format": ...})`."""
        if self.side is None:
            raise _only_on_the_driver("side_output")
        return self.side(name)


class _Plugin:
    """The life that all kinds of plugins have in common."""

    Options: ClassVar[type[Options]] = Options

    def __init__(self, options: Any) -> None:
        self.options = options

    def initialize(self, context: PluginContext) -> None:
        """Called once before the first batch: connect, look up what is stored. Raising refuses the start."""

    def process_checkpoint_marker(self, epoch: int) -> None:
        """All rows of the epoch are there: flush, commit. Raising fails the epoch, and it comes again."""

    def process_checkpoint_finalizer(self, epoch: int) -> None:
        """The epoch is noted in the checkpoint and does not come again; after a restart this may be called once more."""

    def terminate(self) -> None:
        """Called once in the end, also after an error: let go of what is open, and of rows that no marker followed."""


class SourcePlugin(_Plugin, ABC):
    """An origin of rows, outside of penstock; it lives on the driver.

    **Rows can be read again**: `read` with the offset of an epoch and the number of its rows gives the same rows and
    the same end, also in another process and after more rows have come. So an epoch that was cut short by a crash
    comes again as it was. What an origin cannot give twice, a plugin keeps in `context.state` until
    `process_checkpoint_finalizer`.
    """

    schema: Any = None
    """The columns: a `pyarrow.Schema`, a PySpark schema or text as in `"id BIGINT, name STRING"`; a property when
    they follow from options."""
    bounded: ClassVar[bool] = False
    """Whether it comes to an end: a `read` that gives no rows is the last one."""
    batch_size: int = 100_000
    """How many rows an epoch has at most."""
    identity: ClassVar[tuple[str, ...] | None] = None
    """The options that say which rows there are: with other values a pipeline reads from the beginning. None: all
    that are no secrets."""

    @abstractmethod
    def read(self, offset: Any, limit: int) -> tuple[Iterable[pa.RecordBatch], Any]:
        """Return the rows behind an offset, `limit` at most, and the offset behind the last of them.

        The first offset is None, the others are what `read` returned: anything that JSON can say. No rows go with the
        offset that came in. It returns soon, with the rows that are there; an error that passes is a
        `ConnectorError(..., retryable=True)`.
        """


class TransformPlugin(_Plugin, ABC):
    """A step between sources and sinks; rows in, rows out, without memory of earlier epochs but for `context.state`.

    With `parallel = True` every Spark task has an instance of its own; otherwise there is one, on the driver, which
    takes the batches one by one, in order. An epoch that was cut short by a crash comes again with the same rows.
    """

    parallel: ClassVar[bool] = True
    """Whether rows are processed in Spark's tasks, or on the driver, in order."""
    schema: Any = None
    """The columns that come out, as in `SourcePlugin.schema`; None: those that `process_batch` gives for a batch without rows."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the rows that come out for some that came in; None for none.

        An error fails the query. In a pipeline with `on_error: drop` or `dead_letter` it fails the rows that cause
        it: they are found by calling again with parts of the batch. `ConnectorError(..., retryable=True)` tries the
        batch again. What a batch that comes again had put into `context.state` and given to side outputs is taken
        back.
        """


class SinkPlugin(_Plugin, ABC):
    """A destination of rows, outside of penstock.

    An epoch is: `process_batch` any number of times, then `process_checkpoint_marker`. An epoch that was cut short by
    a crash comes again with the same number and the same rows. An error ends the query, unless it is a
    `ConnectorError(..., retryable=True)`: then the query waits and begins again from its checkpoint, with a new
    instance.
    """

    parallel: ClassVar[bool] = False
    """Whether rows are processed in Spark's tasks, each with an instance of its own, or on the driver, in order."""
    exactly_once: ClassVar[bool] = False
    """Whether an epoch that comes again leaves no second trace; the plugin sees to that."""
    modes: ClassVar[tuple[str, ...]] = ("append", "update", "complete")

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch) -> None:
        """Take some rows of the epoch that runs. Raising fails the epoch."""


def imported(name: str) -> Any:
    """Return what "my_module:MyClass" names; raises a `ConfigError` when it cannot be imported.

    >>> imported("pathlib:Path").__name__
    'Path'
    """
    module_name, _, attribute = name.partition(":")
    hint = "is it installed, or its folder on PYTHONPATH? Does it work by itself?"
    with importing(f"cannot import '{module_name}'", hint=hint):
        module = import_module(module_name)
    if not hasattr(module, attribute):
        names = [other for other in vars(module) if not other.startswith("_")]
        raise ConfigError(
            f"the module '{module_name}' has no '{attribute}'",
            code="PLUGIN_IMPORT",
            hint=suggest(attribute, names, what="name"),
        )
    return getattr(module, attribute)


def _only_on_the_driver(what: str) -> StateError:
    return StateError(
        f"context.{what} is on the driver only, and this is a Spark task",
        code="PLUGIN_IN_TASK",
        hint="use it in process_checkpoint_marker, when context.partition is None, or set parallel = False",
    )
