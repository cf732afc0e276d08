"""The options of the sink that keeps aggregates in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from penstock.options import Options, mistake
from penstock.sinks.postgres.options import PostgresServerOptions

_TYPE = re.compile(r"[a-z_][a-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?", re.IGNORECASE)


class ResultColumn(Options):
    """One column of the aggregate table."""

    from_: str | None = Field(
        None, validation_alias="from", description="the column of the rows; default: that of the same name"
    )
    type: str | None = Field(
        None,
        description="its type in PostgreSQL, `numeric(30,5)` for example; default: as the values need it",
    )

    @field_validator("type")
    @classmethod
    def _is_type(cls, kind: str | None) -> str | None:
        if kind is not None and not _TYPE.fullmatch(kind):
            raise mistake(
                "is no type of PostgreSQL", hint="for example bigint, numeric(30,5) or varchar(100)"
            )
        return kind


class AggregateColumn(ResultColumn):
    """One aggregate of each group."""

    fn: Literal["sum", "count", "avg", "min", "max"] = Field(
        description="`sum`, `count`, `avg`, `min` or `max`; `count` without `from` counts rows, all others leave NULL out"
    )


def _as_columns(value: Any) -> Any:
    """Columns by their names; a list of names means columns of the rows as they are."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if isinstance(value, list | tuple):
        return {name: {} for name in value}
    if isinstance(value, Mapping):
        return {name: {} if column is None else column for name, column in value.items()}
    return value


GroupColumns = Annotated[
    dict[str, ResultColumn],
    BeforeValidator(_as_columns),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {
                    "type": "object",
                    "additionalProperties": {
                        "anyOf": [ResultColumn.model_json_schema(), {"type": "null"}],
                    },
                },
            ]
        }
    ),
]


class PostgresAggregateOptions(PostgresServerOptions):
    """The table of the rows, and what is kept of each group of them."""

    landing_table: str = Field(description="the table of the rows, by their key: `table` or `schema.table`")
    agg_table: str = Field(description="the table of the aggregates, with a row per group")
    group_by: GroupColumns = Field(
        {},
        description="the columns of a group, as `account: {from: owner, type: text}` or a list of names; "
        "default: all rows are one group",
    )
    aggregate: dict[str, AggregateColumn] = Field(
        min_length=1, description="the aggregates of a group, as `balance: {fn: sum, from: amount}`"
    )
