"""What a node gives to those that read it: its columns, and what its rows mean."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.data.operation import OPERATION, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """The columns, the key and the kind of a node's rows."""

    schema: StructType
    """With the column of operations or weights, if they have one."""
    keys: tuple[str, ...] = ()
    """The columns that tell rows apart; empty when the user named none."""
    static: bool = False
    """Whether all rows are there in every batch, as those of a look-up."""
    lost_keys: tuple[str, ...] = ()
    """The columns by which operations tell rows apart, when they are not among its own: a delete may have NULL in all
    of these."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(self.schema.names)

    @property
    def operations(self) -> bool:
        """Whether each row says what happened to the row with its key."""
        return OPERATION in self.schema.names

    @property
    def operation_keys(self) -> tuple[str, ...]:
        """The columns by which its operations tell rows apart; empty without operations, or when the user named none."""
        return (self.lost_keys or self.keys) if self.operations else ()

    def is_keyed_by(self, keys: Collection[str]) -> bool:
        """Whether its operations are by this key, where their key is known: they do not say what happens to the rows
        of another key."""
        return not self.operation_keys or (not self.lost_keys and set(keys) == set(self.keys))

    @property
    def weights(self) -> bool:
        """Whether each row says how often it comes or goes."""
        return WEIGHT in self.schema.names

    def same_as(self, schema: Any) -> bool:
        """Whether these are the columns, apart from whether they may be NULL."""
        return [(field.name, field.dataType) for field in self.schema.fields] == [
            (field.name, field.dataType) for field in schema.fields
        ]
