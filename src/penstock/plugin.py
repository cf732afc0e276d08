"""What a plugin is: a class with options, and a life that follows the epochs of a query.

    class Lines(ps.SinkPlugin):
        class Options(ps.Options):
            path: str

        def initialize(self, context): ...
        def process_batch(self, batch): ...

A package offers it through an entry point in the group `penstock.sinks`; its name is what users write in `.format(...)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.errors import StateError
from penstock.options import Options

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Context", "KeyValues", "Options", "SideOutput", "SinkPlugin"]


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


class SideOutput(Protocol):
    """Rows that leave a plugin by another way."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Give rows away; they are stored with the epoch that runs."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a plugin gets to know of the query it works for."""

    query: str
    """The query's id: the same after a restart from its checkpoint, another one without."""
    name: str
    mode: str
    """append, update or complete."""
    schema: pa.Schema
    keys: tuple[str, ...] = ()
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


class SinkPlugin(ABC):
    """A destination of rows, outside of penstock.

    An epoch is: `process_batch` any number of times, then `process_checkpoint_marker`. An epoch that was cut short by a crash comes
    again with the same number and the same rows. An error ends the query, unless it is a `ConnectorError(..., retryable=True)`: then the
    query waits and begins again from its checkpoint, with a new instance.
    """

    Options: ClassVar[type[Options]] = Options
    parallel: ClassVar[bool] = False
    """Whether rows are processed in Spark's tasks, each with an instance of its own, or on the driver, in order."""
    exactly_once: ClassVar[bool] = False
    """Whether an epoch that comes again leaves no second trace; the plugin sees to that."""
    modes: ClassVar[tuple[str, ...]] = ("append", "update", "complete")

    def __init__(self, options: Any) -> None:
        self.options = options

    def initialize(self, context: Context) -> None:  # noqa: B027  # not all have something to prepare
        """Called once before the first batch: connect, look up what is stored. Raising refuses the start."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch) -> None:
        """Take some rows of the epoch that runs. Raising fails the epoch."""

    def process_checkpoint_marker(self, epoch: int) -> None:  # noqa: B027
        """All rows of the epoch are there: flush, commit. Raising fails the epoch, and it comes again."""

    def process_checkpoint_finalizer(self, epoch: int) -> None:  # noqa: B027
        """The epoch is noted in the checkpoint and does not come again; after a restart this may be called once more."""

    def terminate(self) -> None:  # noqa: B027
        """Called once in the end, also after an error: let go of what is open, and of rows that no marker followed."""


def _only_on_the_driver(what: str) -> StateError:
    return StateError(
        f"context.{what} is on the driver only, and this is a Spark task",
        code="PLUGIN_IN_TASK",
        hint="use it in process_checkpoint_marker, when context.partition is None, or set parallel = False",
    )
