"""The transform `cdc`: a table, or the history of a table, from the changes of its rows in any order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from penstock.data.operation import DELETE, OPERATION
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

FROM, TO = "valid_from", "valid_to"
_NUMBER, _GONE = "_number", "_gone"


class CdcNode(ViewTransformNode):
    """Makes a table, or the history of a table, from changes of its rows that come late, in any order, or twice.

    Each change has a sequence (`sequence_by`). With `scd: 1` the result has the last row of each key. With `scd: 2`
    it has every version of it, with `valid_from` and `valid_to`: the sequence of the change that made the version,
    and of the change that ended it (NULL for the version that holds now). Its rows have `_op`.

    It keeps every change that ever came, so its state grows for as long as changes come.
    """

    type: Literal["cdc"] = Field("cdc", description="`cdc`")
    from_: str = Field(validation_alias="from", description="the node whose rows are the changes")
    primary_key: Names = Field(description="the columns that tell the rows of the table apart")
    sequence_by: Names = Field(
        description="the columns by which the changes of a key follow each other; of several changes with "
        "the same sequence the one that came last counts. A change whose first "
        "such column is NULL comes before all others with `scd: 1`, and is left out with `scd: 2`"
    )
    delete_where: str | None = Field(
        None,
        description="the condition under which a change deletes the row of its key; default: `_op = 'd'` where rows have `_op`",
    )
    scd: Literal[1, 2] = Field(1, description="1 for the rows as they are, 2 for their history")
    exclude: Names = Field((), description="columns of the changes that the result does not show")

    @model_validator(mode="after")
    def _needs_columns(self) -> Self:
        if not self.primary_key:
            raise mistake("the columns of primary_key are missing")
        if not self.sequence_by:
            raise mistake("the columns of sequence_by are missing")
        hidden = {name.lower() for name in self.exclude}
        for name in self.primary_key:
            if name.lower() in hidden:
                raise mistake(f"exclude names '{name}', which is part of the primary key")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        return self.primary_key if self.scd == 1 else (*self.primary_key, FROM)

    def reads(self, names: Mapping[str, str], operations: Collection[str] = ()) -> tuple[ViewInput, ...]:
        node = names.get(self.from_.lower(), self.from_)
        return (ViewInput(node, log_name(node), log=True),)

    def definition(self, columns: Mapping[str, Sequence[str]]) -> str:
        [(relation, input_columns)] = columns.items()
        added = [_NUMBER, _GONE, *([FROM, TO] if self.scd == 2 else [])]
        refuse_taken(added, input_columns, node=self.from_)

        def named(field: str, names: Sequence[str]) -> list[str]:
            return [column_of(name, input_columns, field=field, node=self.from_) for name in names]

        keys, sequence = named("primary_key", self.primary_key), named("sequence_by", self.sequence_by)
        hidden = [quoted(_NUMBER), quoted(_GONE), *named("exclude", self.exclude)]
        hidden += [quoted(name) for name in (ARRIVAL, OPERATION) if name in input_columns]
        gone = self.delete_where
        if gone is None and OPERATION in input_columns:
            gone = f"{quoted(OPERATION)} = '{DELETE}'"
        latest = [*sequence, *([quoted(ARRIVAL)] if ARRIVAL in input_columns else [])]
        # A history has one change for each moment of a key; a table has one for each key.
        same = keys if self.scd == 1 else [*keys, sequence[0]]
        order = ", ".join(f"{column} DESC NULLS LAST" for column in latest)
        rows = (
            f"SELECT *, row_number() OVER (PARTITION BY {', '.join(same)} ORDER BY {order}) AS {quoted(_NUMBER)}, "
            f"coalesce(\n{gone or 'false'}\n, false) AS {quoted(_GONE)} FROM {relation_name(relation)}"
        )
        rows = f"SELECT * FROM ({rows}) WHERE {quoted(_NUMBER)} = 1"
        if self.scd == 2:
            rows = f"{rows} AND {sequence[0]} IS NOT NULL"
            over = f"OVER (PARTITION BY {', '.join(keys)} ORDER BY {sequence[0]})"
            rows = f"SELECT *, {sequence[0]} AS {FROM}, lead({sequence[0]}) {over} AS {TO} FROM ({rows})"
        return f"SELECT * EXCEPT ({', '.join(dict.fromkeys(hidden))}) FROM ({rows}) WHERE NOT {quoted(_GONE)}"
