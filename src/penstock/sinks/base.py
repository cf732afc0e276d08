"""The contract of a sink: what it knows of its query, what it must do, and what it guarantees."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import ConfigError, InternalError
from penstock.options import Options, OptionsOwner, read_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.config import Settings
    from penstock.plugin import Namespace
    from penstock.sinks.refused import RefusedRows
    from penstock.spark.micro_batch.live import Live


class Guarantee(StrEnum):
    """What a sink promises about each input row after crashes and restarts."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NOT_KEPT = "not kept"
    """The sink ends with the process."""


class QueryStatus:
    """What a query waits for and how often it tried again; one per query, owned by its runtime, safe in every thread.

    The sink, its side outputs and the sources of the query report to it through `Target.status`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._message: str | None = None
        self._retries = 0
        self.stopping = threading.Event()
        """Set when the query is to end: a sink that waits for a server gives up, and the epoch comes again after a restart."""

    @property
    def message(self) -> str | None:
        """What the query waits for; None when it waits for nothing."""
        with self._lock:
            return self._message

    @property
    def retries(self) -> int:
        """How often something was tried again because the other system was away."""
        with self._lock:
            return self._retries

    def waiting(self, message: str) -> None:
        """Count one retry, and show what the query waits for."""
        with self._lock:
            self._message = message
            self._retries += 1

    def resumed(self) -> None:
        """The query waits for nothing any more."""
        with self._lock:
            self._message = None


@dataclass(frozen=True, slots=True)
class Target:
    """The query that writes to a sink."""

    spark: SparkSession
    query: str
    """The query's id: the same after a restart from its checkpoint, another one without."""
    name: str
    mode: str
    schema: StructType
    keys: tuple[str, ...] = ()
    operation: str | None = None
    """The column of the schema with the operation of each row, `i`, `u` or `d`; None where all rows are inserts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    stateful: bool = False
    """Whether there may be batches without a row, which only move the watermark."""
    committed: int = -1
    """The last epoch that the query's checkpoint has as done, before this start."""
    begun: int = -1
    """The last epoch whose rows the checkpoint has laid down, done or not, before this start."""
    state: Namespace | None = None
    """Values of the sink in the state backend, from one start to the next; None for a query without a name."""
    status: QueryStatus = field(default_factory=QueryStatus)
    """Where the sink reports what it waits for."""
    refused: RefusedRows | None = None
    """Where a sink notes rows that its system refuses for their values, and which it leaves out; None where such a
    row fails the epoch."""
    settings: Settings = field(kw_only=True)
    """The settings of the session that runs the query."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The rows of one batch; a batch that is run again after a crash has the same number and the same rows."""

    number: int
    frame: DataFrame


def counted(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Return a frame that counts its rows while they are written, and a function that returns the count after that."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # as PySpark's users have it

    observation = Observation()
    watched = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    return watched, lambda: int(observation.get["rows"])


class Sink(ABC):
    """One destination, made from the options of the user.

    A sink that says EXACTLY_ONCE must recognise an epoch that it has committed already, and leave no trace of one that it
    has not. The runtime calls all methods on the driver, from one thread at a time.
    """

    modes: ClassVar[frozenset[str]] = frozenset({"append", "update", "complete"})
    Options: ClassVar[type[Options]] = Options
    """The options of this sink: their names, types and defaults."""
    needs_checkpoint: bool = True
    """Whether a query that goes on after a restart must say where its checkpoint is."""
    takes_operations: ClassVar[bool] = False
    """Whether `write` knows what `Target.operation` means: it deletes in update mode, and shows or stores the
    operation in append mode."""
    reads_all_rows: ClassVar[bool] = True
    """Whether `write` reads every row of an epoch; False for a function of the user's, which may not."""

    @property
    def wants_epoch(self) -> bool:
        """Asked when the sink is open, before the first batch: whether it has something to write although no row may come."""
        return False

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        """Check what the user wrote; `settings` complete it, with the addresses of servers for example."""
        self.options = read_options(
            self.Options, options, owner=OptionsOwner(f"the {self.kind} sink"), settings=settings
        )
        self.guarantee_reason: str | None = None
        """Why the guarantee is what it is, where that depends on more than the options; `check` may set it."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What this sink guarantees with its options."""

    def check(self, target: Target) -> None:  # noqa: B027  # most sinks have nothing to refuse
        """Called once before the query starts: refuse what cannot work, and change nothing. `close` comes after it.

        Raising refuses the start.
        """

    def check_connection(self, target: Target) -> None:  # noqa: B027
        """Called in the place of `check` for rows whose columns nobody knows before they come: try the connection,
        change nothing. `close` comes after it.

        Raising refuses the start.
        """

    def open(self, target: Target) -> None:  # noqa: B027  # and nothing to prepare
        """Called before the first epoch of each run: connect, fence off an older writer, look up the last committed epoch.

        Raising fails the query.
        """

    @abstractmethod
    def write(self, epoch: Epoch) -> int | None:
        """Write and commit one epoch; return the number of rows that are new in the sink, or None when it is not known.

        An error fails the query; after a restart the same epoch comes again.
        """

    @property
    def is_done(self) -> bool:
        """Whether it wants no more rows: asked after each epoch, and when it is so, the query ends in order."""
        return False

    @property
    def is_live(self) -> bool:
        """Whether Spark can write to it by itself, without epochs: only for sinks that are not exactly once."""
        return False

    def live(self, frame: DataFrame) -> Live:
        """Called after `open`, when `is_live`, by a query whose rows do not come in epochs; `write` is not called then."""
        raise InternalError(f"{self.describe()} is written epoch by epoch", code="SINK_NOT_LIVE")

    def finalize(self, epoch: int) -> None:  # noqa: B027
        """Called once per epoch when the query's checkpoint has it: before the next `write`, or before `close`.

        The epoch does not come again. An error fails the query.
        """

    def close(self) -> None:  # noqa: B027
        """Called after `check`, and after the last epoch, also after an error; `open` may come again."""

    def batches(self) -> list[pa.RecordBatch] | None:
        """Return the rows that the sink keeps in this process; None when it keeps none."""
        return None

    @property
    def kind(self) -> str:
        """The sink's name, as users write it."""
        return type(self).__name__.removesuffix("Sink").lower()

    def describe(self) -> str:
        """Return where the rows go, in one line for people."""
        return self.kind


def require_key(target: Target) -> None:
    """Refuse update mode without a key, in a sink in which it is an upsert."""
    if target.mode == "update" and not target.keys:
        raise ConfigError(
            "update mode needs a key, by which rows that are there are replaced",
            code="STREAM_KEY",
            hint='add .key("id") to the writer, or use append',
        )
