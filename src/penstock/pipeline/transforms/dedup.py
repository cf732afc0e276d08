"""The transform `dedup`: one row of those that are alike in some columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from penstock.data.operation import OPERATION
from penstock.options import Names, mistake
from penstock.pipeline.view_node import (
    ARRIVAL,
    ViewInput,
    ViewTransformNode,
    column_of,
    log_name,
    quoted,
    refuse_taken,
    relation_name,
)

_RANK = "_rank"


class DedupNode(ViewTransformNode):
    """Lets one row pass of those that are alike in some columns: the first or the last one, as they came or by the
    order of other columns.

    Its rows have `_op`: a row that replaces another one is a `u`.

    It keeps every row that ever came, duplicates too, so its state grows for as long as rows come.
    """

    type: Literal["dedup"] = Field("dedup", description="`dedup`")
    from_: str = Field(validation_alias="from", description="the node whose rows it takes")
    by: Names = Field((), description="the columns in which rows are alike; default: those of `primary_key`")
    keep: Literal["first", "last"] = Field("first", description="which of them stays: `first` or `last`")
    order_by: Names = Field(
        (),
        description="the columns that order them, NULL behind all others; default: the order in which they came",
    )

    @model_validator(mode="after")
    def _needs_columns(self) -> Self:
        if not self.by and not self.primary_key:
            raise mistake(
                "the columns in which rows are alike are missing", hint="add `by:` or `primary_key:`"
            )
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        return self.primary_key or self.by

    def reads(self, names: Mapping[str, str], operations: Collection[str] = ()) -> tuple[ViewInput, ...]:
        node = names.get(self.from_.lower(), self.from_)
        # A row that was updated or deleted is none of those to choose from.
        if node in operations:
            return (ViewInput(node, node),)
        return (ViewInput(node, log_name(node), log=True),)

    def definition(self, columns: Mapping[str, Sequence[str]]) -> str:
        relation, input_columns = next(iter(columns.items()), (self.from_, None))
        if input_columns is None:
            # The rows of a view beside this one, whose columns Spark knows when it plans both.
            input_columns = [*self.by, *self.primary_key, *self.order_by]
        refuse_taken([_RANK], input_columns, node=self.from_)
        is_log = ARRIVAL in input_columns
        by = [
            column_of(name, input_columns, field="by", node=self.from_)
            for name in self.by or self.primary_key
        ]
        for name in self.primary_key:
            column_of(name, input_columns, field="primary_key", node=self.from_)
        order = [column_of(name, input_columns, field="order_by", node=self.from_) for name in self.order_by]
        if is_log:
            order.append(quoted(ARRIVAL))
        direction = "ASC" if self.keep == "first" else "DESC"
        # Where rows change by key there is no order of arrival, and equal rows are chosen from by their key.
        ordered = ", ".join(f"{column} {direction} NULLS LAST" for column in order or by)
        added = [
            quoted(name) for name in (_RANK, ARRIVAL, OPERATION) if name == _RANK or name in input_columns
        ]
        return (
            f"SELECT * EXCEPT ({', '.join(added)}) FROM ("
            f"SELECT *, row_number() OVER (PARTITION BY {', '.join(by)} ORDER BY {ordered}) AS {quoted(_RANK)} "
            f"FROM {relation_name(relation)}) WHERE {quoted(_RANK)} = 1"
        )
