"""What a node gives to those that read it: its columns, and what its rows mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.data.operation import OPERATION, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of a node."""

    schema: StructType
    """With the column of operations or weights, if they have one."""
    keys: tuple[str, ...] = ()
    """The columns that tell rows apart; empty when nobody said."""
    static: bool = False
    """Whether all rows are there in every batch, as those of a look-up."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(self.schema.names)

    @property
    def operations(self) -> bool:
        """Whether each row says what happened to the row with its key."""
        return OPERATION in self.schema.names

    @property
    def weights(self) -> bool:
        """Whether each row says how often it comes or goes."""
        return WEIGHT in self.schema.names

    def same_as(self, schema: Any) -> bool:
        """Whether these are the columns, apart from whether they may be NULL."""
        return [(field.name, field.dataType) for field in self.schema.fields] == [
            (field.name, field.dataType) for field in schema.fields
        ]
