"""The contract of a source: what it needs, what it returns, and what it reports while a query runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from penstock.options import Options, OptionsOwner, read_options
from penstock.sources.spark_options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import Settings
    from penstock.plugin import Namespace
    from penstock.sources.bad_record import BadRecordTap


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The session in which a source is read."""

    spark: SparkSession
    settings: Settings
    state: Namespace | None = None
    """What the source remembers from one start to the next, such as columns that it has inferred; None where it
    begins anew each time."""
    folder: str | None = None
    """A folder of the source's own beside the checkpoint, for a source that keeps more; None is a temporary one."""
    goes_on: bool = False
    """Whether the source comes to an end and the query goes on after it, because other sources have none."""
    ends: bool = False
    """Whether the query reads what is there when it starts, and ends."""
    temporary_folder: Callable[[], str] = mkdtemp
    """Makes a folder for a source without one of its own; that of a session ends with it."""


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """A source as a streaming DataFrame."""

    frame: DataFrame
    bad_records: BadRecordTap | None = None
    """Where bad records leave the plan, when the source tells them from good ones; the query counts and stores them there."""


@dataclass(frozen=True, slots=True)
class ExternalResource:
    """Something that a source makes in another system and leaves there when its query ends: enough to remove it, and
    nothing secret."""

    what: str
    """In words, with its name: `replication slot penstock_shop_orders`."""
    kind: str
    """The source that knows how to remove it, by its name."""
    where: str
    """Where it is: `db:5432/shop`."""
    names: Mapping[str, str]
    """Its names there."""
    cost: str = ""
    """What it costs as long as it is there, in words."""

    def __str__(self) -> str:
        return f"{self.what} at {self.where}"


class OffsetReporter(Protocol):
    """Publishes how far a query has read, for tools that show lag; the query never reads it back."""

    @property
    def failures(self) -> int:
        """How often offsets could not be published."""

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Called after every epoch that Spark has committed, with the end of each partition; returns at once and never raises."""

    def close(self) -> None:
        """Called once, after the last epoch: publish what is pending, within a few seconds."""


class Source(ABC):
    """One origin of rows, made from the options of the user; the twin of `Sink`.

    A source is a plan of Spark's: `read` returns it, and Spark reads the records when a query runs. Lag is what Spark
    says in the progress of each epoch (`QueryProgress.sources`).
    """

    Options: ClassVar[type[Options]] = SparkOptions
    """The options of this source: their names, types and defaults."""
    location: ClassVar[str | None] = "path"
    """The option that the argument of `.load(...)` sets; None for a source that has no location."""

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        """Check what the user wrote; `settings` complete it, with the addresses of servers for example."""
        owner = OptionsOwner(f"the {self.kind} source", code="SOURCE_OPTION", syntax="{name}={value}")
        self.options = read_options(self.Options, options, owner=owner, settings=settings)

    @property
    def kind(self) -> str:
        """The source's name, as users write it."""
        return type(self).__name__.removesuffix("Source").lower()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell its rows apart, when the source itself knows."""
        return ()

    def named(self, pipeline: str, node: str) -> Self:
        """Called before all else by a pipeline: return the source with the names of both in what it makes in other systems."""
        return self

    @property
    def external_resource(self) -> ExternalResource | None:
        """What the source makes in another system and leaves there when its query ends; None for nothing."""
        return None

    def reset(self) -> bool:
        """Called when the source is to begin anew: remove what it has made in another system; False when there is nothing."""
        return False

    @classmethod
    def remove(cls, resource: ExternalResource, url: str) -> bool:
        """Called when the state of a pipeline is reset: remove what a source has made, at the address of its system;
        False when it is not there."""
        return False

    def check(self) -> None:  # noqa: B027  # most are tried by `read`
        """Called by a dry run and before the first start: try the connection, change nothing."""

    @abstractmethod
    def read(self, context: SourceContext) -> SourceFrame:
        """Called when the user builds a stream; it reads no record, but may look up schemas.

        Raising refuses the stream. When Spark lacks a connector, the session installs it and calls `read` once more.
        """

    @classmethod
    def reporter(cls, options: Mapping[str, str], *, note: Callable[[str], None]) -> OffsetReporter | None:
        """Called when a query starts, with Spark's options of the source in its plan: return what publishes its offsets.

        None publishes nothing. Raising refuses the start. `note` takes a failure for the log of the query.
        """
        return None

    @classmethod
    def bounded(cls, spark: SparkSession, relation: Any, *, folder: Callable[[], str]) -> dict[str, str]:
        """Called when a query with `Trigger.once()` starts: return options that let a batch read what the source holds now.

        `relation` is Spark's node of the plan, `folder` makes a temporary folder. Raising refuses the start.
        """
        return {}
