"""The transform `view`: a query over all rows that ever came, kept up to date incrementally."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator

from penstock.pipeline.transforms.sql import one_query
from penstock.pipeline.view_node import ViewInput, ViewTransformNode
from penstock.sql.relation import read_names


class ViewNode(ViewTransformNode):
    """Keeps the answer of a query over all rows that ever came: joins of several nodes, aggregates, windows, top-k.

    Each batch costs what it changes, and the next nodes get the changes of the answer: with `primary_key` as rows
    with `_op`, without one as rows with `_weight`.

    It keeps the rows of its inputs, so its state grows for as long as new rows or new keys come.
    """

    type: Literal["view"] = Field("view", description="`view`")
    sql: str = Field(description="the query; it reads nodes by their names, as tables with all their rows")

    @field_validator("sql")
    @classmethod
    def _is_one_query(cls, text: str) -> str:
        return one_query(text)

    def reads(self, names: Mapping[str, str], operations: Collection[str] = ()) -> tuple[ViewInput, ...]:
        return tuple(ViewInput(node, node) for node in read_names(self.sql, names))

    def definition(self, columns: Mapping[str, Sequence[str]]) -> str:
        return self.sql
