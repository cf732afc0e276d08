"""The contract of a transform: rows of an epoch in, rows out; the third beside `Source` and `Sink`.

A transform is stateless between epochs, but for what it keeps in `TransformContext.state`: an epoch that is run again
after a crash gives the same rows. What needs memory of earlier rows (dedup, changes by key) is a view of a flow, and
no transform.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.options import Options, OptionsOwner, read_options
from penstock.sinks.base import QueryStatus
from penstock.sinks.failed_row import ERROR as ERROR
from penstock.sinks.failed_row import INPUT as INPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import Settings
    from penstock.errors import PenstockError
    from penstock.plugin import KeyValues

OnError = Literal["fail", "drop", "dead_letter"]
"""What happens to a row that a transform or a sink cannot take."""


@dataclass(frozen=True, slots=True)
class TransformContext:
    """The node of a pipeline that a transform is."""

    spark: SparkSession
    query: str
    """The id of the query that it is part of: the same after a restart."""
    name: str
    """Of the node."""
    settings: Settings
    on_error: OnError = "fail"
    keys: tuple[str, ...] = ()
    """The primary key of its rows, as far as the user gave one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: KeyValues | None = None
    """Values of the node in the state backend, from one start to the next; None where nothing is run, as in a dry run."""
    status: QueryStatus = field(default_factory=QueryStatus)

    def running(self, query: str, state: KeyValues | None, status: QueryStatus) -> TransformContext:
        """Return the same node as part of a query that runs."""
        return replace(self, query=query, state=state, status=status)


class Transform(ABC):
    """One step between sources and sinks, made from the options of the user."""

    Options: ClassVar[type[Options]] = Options
    keeps_columns: ClassVar[bool] = False
    """Whether the columns that come in go out as they are, so that the key of a row is the same before and behind it."""

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        """Check what the user wrote; `settings` complete it."""
        owner = OptionsOwner(f"the {self.kind} transform", code="TRANSFORM_OPTION", syntax="{name}: {value}")
        self.options = read_options(self.Options, options, owner=owner, settings=settings)

    @property
    def kind(self) -> str:
        """The transform's name, as users write it."""
        return type(self).__name__.removesuffix("Transform").lower()

    def check(self, context: TransformContext) -> None:  # noqa: B027  # most have nothing to refuse
        """Called by a dry run and before the first start: try connections, refuse what cannot work, change nothing.
        `close` comes after it."""

    def open(self, context: TransformContext) -> None:  # noqa: B027  # and nothing to prepare
        """Called before the first epoch of each run. Raising fails the query."""

    @abstractmethod
    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        """Return the rows of an epoch as they leave the transform: a plan, which Spark runs when sinks write.

        Called once for each epoch, and for its plan alone with an empty frame, to know the columns that it gives.
        With `on_error` other than `fail`, rows that fail come out too, with `_error` and `_input` set and NULL
        elsewhere; with `fail` the task raises a `DataError` that names the row. A column `_op` that comes in goes out
        unless the transform says otherwise.
        """

    def begin(self, epoch: int) -> None:  # noqa: B027  # most do not look at epochs
        """Called before `apply` with the rows of an epoch; not before a call for its plan alone."""

    def commit(self, epoch: int) -> None:  # noqa: B027
        """Called when all sinks have written an epoch, before its offsets are noted. Raising fails the epoch, and it
        comes again."""

    def finalize(self, epoch: int) -> None:  # noqa: B027
        """Called when the checkpoint has an epoch: before the next `begin`, or before `close`. It does not come again."""

    def counts(self) -> Mapping[str, int]:
        """Called after an epoch is written: rows that it counted since the last call, by the name under which they are shown."""
        return {}

    def failure(self, error: BaseException) -> PenstockError | None:
        """Called when an epoch has failed: the error for the user, if the exception of Spark comes from this
        transform; else None."""
        from penstock.transforms.task_error import carried

        return carried(error)

    def close(self) -> None:  # noqa: B027
        """Called after `check`, and after the last epoch, also after an error; `open` may come again."""
