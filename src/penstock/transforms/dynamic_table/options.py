"""The options of dynamic tables."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from penstock.options import Duration, Options, mistake
from penstock.sources.postgres.address import PostgresUrl

_REFRESH = 1_000
"""The default of `refresh`, in milliseconds."""


def _spelled(value: object) -> object:
    names = {"postgres": "Postgres", "inmemory": "InMemory", "in_memory": "InMemory"}
    return names.get(value.lower(), value) if isinstance(value, str) else value


Backend = Annotated[
    Literal["InMemory", "Postgres"],
    BeforeValidator(_spelled),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["InMemory", "Postgres"]},
                {
                    "type": "string",
                    "pattern": "^([Ii][Nn]_?[Mm][Ee][Mm][Oo][Rr][Yy]|[Pp][Oo][Ss][Tt][Gg][Rr][Ee][Ss])$",
                },
            ]
        }
    ),
]


class DynamicTableOptions(Options):
    """Where the values are, and how they get there."""

    backend: Backend = Field(
        "InMemory",
        description="`InMemory`: in the memory of the pipeline, and in its state from one start to the "
        "next; `Postgres`: a table, which "
        "others may change too",
    )
    sql: str | None = Field(
        None,
        description="a query of one column over other nodes: its rows are added, and rows with the "
        "operation `d` remove their value. Without "
        "it, the values come from outside alone",
    )
    value_type: str | None = Field(
        None,
        description="InMemory without `sql` only: the type of the values, `string` by default",
    )
    table: str | None = Field(
        None, description="Postgres only: `table` or `schema.table`, which is made when it is missing"
    )
    column: str | None = Field(
        None,
        description="Postgres only: the column with the values; default: the first one, or `value` in a table that is made",
    )
    url: PostgresUrl | None = Field(
        None, repr=False, description="Postgres only: its address; default: `PENSTOCK_POSTGRES_URL`"
    )
    refresh: Duration = Field(
        "1 second",
        validate_default=True,
        description="Postgres only: how old what was read may be when an epoch begins; it is read again "
        "only when the table has changed",
    )

    @model_validator(mode="after")
    def _fits_its_backend(self) -> Self:
        taken = ("value_type",) if self.backend == "InMemory" else ("table", "column", "url", "refresh")
        for name in ("value_type", "table", "column", "url", "refresh"):
            if name not in taken and getattr(self, name) not in (None, _REFRESH):
                raise mistake(
                    f"{name} is no field of the backend {self.backend}", hint=f"it takes {', '.join(taken)}"
                )
        if self.backend == "Postgres" and self.table is None:
            raise mistake("backend Postgres needs `table`")
        if self.sql is not None and self.value_type is not None:
            raise mistake(
                "value_type has no use beside `sql`, which says the type", hint="cast the column in the query"
            )
        return self
