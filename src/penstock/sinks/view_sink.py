"""The contract of a sink that follows a view of a flow: it takes the changes of the view, and its mark is the tick.

A sink stores rows and mark in one transaction, or says in its guarantee that it does not. The mark is what a flow goes on from
after a restart: changes up to it are not handed over again, and those behind it are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.batch import DeltaBatch
from penstock.errors import ConfigError, ConnectorError, PenstockError, suggest
from penstock.options import OptionsOwner, read_options
from penstock.registry import Registry
from penstock.sinks import SINKS
from penstock.sinks.base import Guarantee
from penstock.sinks.server import ServerOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.config import Settings
    from penstock.plan.node import Field

VIEW_SINKS = Registry(
    "view sink",
    {
        "postgres": "penstock.sinks.postgres.view:PostgresViewSink",
        "kafka": "penstock.sinks.kafka.view:KafkaViewSink",
        "parquet": "penstock.sinks.parquet_view:ParquetViewSink",
        "clickhouse": "penstock.sinks.clickhouse.view:ClickHouseViewSink",
        "iceberg": "penstock.sinks.iceberg_view:IcebergViewSink",
        "vector": "penstock.sinks.vector_view:VectorViewSink",
    },
    group="penstock.view_sinks",
)
SYNTAX = "{name}={value}"
NO_MARK = "it has no mark that a view could go on from"


@dataclass(frozen=True, slots=True)
class ViewTarget:
    """The view that a sink follows."""

    id: str
    """Of the registration of the sink: the same after a restart of a durable flow, another one for a flow in memory."""
    name: str
    """For people: the view and its flow."""
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    overwrite: bool
    """Whether rows of others may be replaced; only before the first mark."""
    unique: tuple[str, ...] | None = None
    """Columns by which no two rows of the view are alike, NULLs included; None when the view does not show any."""
    spark: Callable[[], SparkSession] | None = None
    """Gives the Spark session of the flow, for sinks that write by Spark."""
    is_begun: Callable[[], bool] = lambda: False
    """Whether the place of the rows was there before, so that one that is gone was taken away by somebody."""
    sources: Callable[[int], Mapping[str, str]] = lambda tick: {}
    """Gives, for a tick that was not confirmed yet, the snapshots of the tables that the view stands for."""

    @property
    def names(self) -> list[str]:
        """The columns of the view."""
        return [field.name for field in self.fields]


@dataclass(frozen=True, slots=True)
class Change:
    """What a tick did to the view, or several ticks together; `tick` is the last of them."""

    tick: int
    rows: DeltaBatch


class ViewSink(ABC):
    """One destination of a view, made from the options of the user.

    `check` is called in the thread of the user; then all methods are called from one thread of the sink. Errors for which
    `transient` has a reason are tried again behind `close` and `open`, for as long as the flow is open; any other ends the sink.
    """

    Options: ClassVar[type[ServerOptions]] = ServerOptions
    needs_key: ClassVar[bool] = True
    """Whether the rows of the view must have a key."""
    replaces: ClassVar[bool] = True
    """Whether `replace` brings it in line whatever it holds; False for logs of changes, which only grow."""
    notes_sources: ClassVar[bool] = False
    """Whether it stores the snapshots of the tables that the view stands for, also of ticks that change no row."""
    checks_keys: ClassVar[bool] = False
    """Whether it notices by itself that a key comes which is there already; otherwise the flow looks it up in the view."""

    options: ServerOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        owner = OptionsOwner(f"the {self.kind} sink", code="FLOW_SINK_OPTION", syntax=SYNTAX)
        self.options = read_options(self.Options, options, owner=owner, settings=settings)
        self._target: ViewTarget | None = None

    @property
    def kind(self) -> str:
        """The sink's name, as users write it."""
        return type(self).__name__.removesuffix("ViewSink").lower()

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What this sink guarantees with its options."""

    @abstractmethod
    def describe(self) -> str:
        """Return where the rows go, in one line for people and without secrets."""

    @property
    def target(self) -> ViewTarget:
        """The view, once the sink is opened."""
        assert self._target is not None, "the sink was not opened"
        return self._target

    def check(self, target: ViewTarget) -> None:  # noqa: B027  # some have nothing to refuse
        """Called once when the sink is registered: refuse what cannot work, and change nothing. `close` comes after it."""

    @abstractmethod
    def open(self, target: ViewTarget) -> int | None:
        """Connect, and return the mark; None when there is none, which `replace` then makes. Called again after an error."""

    @abstractmethod
    def replace(self, rows: pa.Table, tick: int) -> None:
        """Be these rows, which the view had after a tick, and move the mark there, back too. A log of changes only
        begins with them."""

    def rewrites(self, changes: Sequence[Change]) -> bool:
        """Whether `replace` is the cheaper way to store some changes; only asked of a sink that `replaces`."""
        return False

    @abstractmethod
    def apply(self, changes: Sequence[Change]) -> None:
        """Store changes, oldest first, and move the mark to the last one."""

    def forget(self, target: ViewTarget) -> None:  # noqa: B027  # some keep their mark with the rows
        """Called when the sink is dropped: take out the mark. The rows stay."""

    def close(self) -> None:  # noqa: B027  # some hold nothing
        """Let go of connections; `open` may come again."""

    def transient(self, error: Exception) -> str | None:
        """Say what an error means that goes away by itself; None when it does not, or is not the server's."""
        return None

    def translate(self, error: Exception) -> PenstockError | None:
        """Return the error for the user, for one of the client's that does not go away; None leaves it as it is."""
        return None


def view_sink(kind: str, options: Mapping[str, Any], settings: Settings | None) -> ViewSink:
    """Return the sink of a name; ConfigError when there is none, or none that follows views."""
    if kind in SINKS.builtin and kind not in VIEW_SINKS.builtin:
        raise ConfigError(
            f"the {kind} sink cannot follow a view: {NO_MARK}",
            code="FLOW_SINK_KIND",
            hint=f"views are followed by {', '.join(VIEW_SINKS)}; for anything else there is flow.watch_output(view)",
        )
    if kind not in VIEW_SINKS.names():
        raise ConfigError(
            f"unknown sink '{kind}'",
            code="UNKNOWN_SINK",
            hint=suggest(str(kind), VIEW_SINKS.names(), what="sink"),
        )
    sink: ViewSink = VIEW_SINKS.load(kind)(options, settings)
    return sink


def taken(place: str, owner: str | None, *, where: str) -> PenstockError:
    """Return the error for a place that has rows of others, or another owner."""
    holds = (
        "has rows that this sink has not stored"
        if owner is None
        else f"is written by another sink, of {owner}"
    )
    return ConfigError(
        f"{place} {holds}",
        code="FLOW_SINK_NOT_EMPTY",
        where=where,
        hint="write to another one, empty it, or let the view replace what is there with overwrite=True",
    )


def fenced(place: str, *, where: str) -> PenstockError:
    """Return the error for a mark that another process has moved or taken out."""
    return ConnectorError(
        f"the mark of this sink was changed by another: someone else writes to {place}",
        code="SINK_FENCED",
        where=where,
        hint="one flow per place: drop the sink in one of them, or open only one copy of the flow directory",
    )
