"""Transforms that remember: each compiles to the SQL of an incremental view over the rows of other nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from penstock.data.byte_size import byte_size
from penstock.errors import ConfigError, suggest
from penstock.options import Count, mistake
from penstock.pipeline.node import TransformNode

ARRIVAL = "_arrival"
"""The column that numbers the rows of a log in the order in which they came."""
LOG_SUFFIX = "__log"


def _as_size(value: str) -> str:
    try:
        byte_size(value, what="it")
    except ConfigError as error:
        raise mistake(error.message.removeprefix("it "), hint=error.hint) from None
    return value


ByteSize = Annotated[str, AfterValidator(_as_size)]
"""A size as users write it: `2 GB`, or a number of bytes."""


@dataclass(frozen=True, slots=True)
class ViewInput:
    """What the SQL of a view reads: the rows of a node, under the name of a relation.

    A table has the row of each key, or every row where the node has no key. A log has every row that came, also when
    the node has a key: `_op` is a column like others, and `_arrival` numbers the rows.
    """

    node: str
    """As declared."""
    relation: str
    log: bool = False


class ViewTransformNode(TransformNode):
    """A transform that remembers rows of earlier batches: a view of a durable flow, whose changes go on to the next nodes."""

    shards: Count | None = Field(
        None, description="in how many parts Spark's tasks hold its state; default: one in the driver"
    )
    memory: ByteSize | None = Field(
        None,
        description="state beyond this size lies in files of this machine (`2 GB`); default: all is in memory",
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell its rows apart; none when its changes have `_weight` instead of `_op`."""
        return self.primary_key

    @abstractmethod
    def reads(self, names: Mapping[str, str], operations: Collection[str] = ()) -> tuple[ViewInput, ...]:
        """Return the relations of its SQL, of all nodes by their names in lower case; `operations` are those whose
        rows have `_op`."""

    @abstractmethod
    def definition(self, columns: Mapping[str, Sequence[str]]) -> str:
        """Return the SQL of the view; `columns` are those of each relation that it reads, but for views of its own
        flow. An unknown column is an error."""

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(read.node for read in self.reads(names))


def log_name(node: str) -> str:
    """The relation that has every row of a node that came.

    >>> log_name("shop.orders")
    'shop.orders__log'
    """
    return f"{node}{LOG_SUFFIX}"


def column_of(name: str, columns: Sequence[str], *, field: str, node: str) -> str:
    """A column as it is spelled, in backquotes; ConfigError when there is none of this name."""
    spelled = (
        name
        if name in columns
        else next((column for column in columns if column.lower() == name.lower()), None)
    )
    if spelled is None:
        shown = [column for column in columns if column not in (ARRIVAL,)]
        raise ConfigError(
            f"{field} names the column '{name}', which the rows of '{node}' do not have",
            code="PIPELINE_UNKNOWN_COLUMN",
            hint=suggest(name, shown, what="column"),
        )
    return quoted(spelled)


def quoted(name: str) -> str:
    """A column in backquotes."""
    return f"`{name.replace('`', '``')}`"


def relation_name(name: str) -> str:
    """A relation in SQL, each of its parts in backquotes."""
    return ".".join(map(quoted, name.split(".")))


def refuse_taken(names: Collection[str], columns: Sequence[str], *, node: str) -> None:
    """ConfigError when the rows have a column that the view adds."""
    for name in names:
        if any(name == column.lower() for column in columns):
            raise ConfigError(
                f"the rows of '{node}' have a column '{name}', which this node adds",
                code="PIPELINE_COLUMN_TAKEN",
                hint=f"rename it before, in a sql node: SELECT * EXCEPT ({name}), {name} AS other_name FROM {node}",
            )
