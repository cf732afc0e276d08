"""The options of the Postgres sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from penstock.options import FromSetting, Options, mistake
from penstock.sinks.server import ServerOptions
from penstock.sources.postgres.address import EXAMPLE, PostgresUrl

TARGET = "target"
"""The name of the row that is there, in a condition of `update_where`."""
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


def _as_condition(value: Any) -> Any:
    """A condition as SQL; a dictionary compares columns of the new row with those of the row that is there."""
    if not isinstance(value, Mapping):
        return value
    if not value:
        return None
    unknown = [str(sign) for sign in value.values() if sign not in COMPARISONS]
    if unknown:
        raise mistake(f"has no comparison {unknown[0]!r}", hint=f"Known comparisons: {' '.join(COMPARISONS)}")
    columns = {'"' + str(name).replace('"', '""') + '"': sign for name, sign in value.items()}
    return " AND ".join(f"EXCLUDED.{name} {sign} {TARGET}.{name}" for name, sign in columns.items())


Condition = Annotated[
    str,
    BeforeValidator(_as_condition),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "additionalProperties": {"type": "string", "enum": list(COMPARISONS)}},
            ]
        }
    ),
]


class PostgresServerOptions(ServerOptions):
    """Where the server is, and whether the sink may create tables."""

    url: Annotated[PostgresUrl, FromSetting("postgres_url", EXAMPLE)] = Field(
        repr=False, description=f"the address of the database, `{EXAMPLE}`"
    )
    create: bool = Field(
        True, description="create the table when it is missing, and add columns that are new in the query"
    )


class PostgresOptions(PostgresServerOptions):
    """Where the rows go, and whether the sink may create the table."""

    table: str = Field(description="`table` or `schema.table`")


class UpsertOptions(Options):
    """What happens to a row whose key is there already."""

    on_conflict: Literal["update", "nothing"] = Field(
        "update",
        description="update mode, for a row whose key is there: `update` it, or leave it as it is (`nothing`)",
    )
    update_where: Condition | None = Field(
        None,
        description="update mode: a row that is there is updated only where this holds; `EXCLUDED` is the "
        "new row and `target` the one that "
        'is there: `EXCLUDED.version > target.version`, or shorter `{version: ">"}`. Deletes are not asked',
    )
    deduplicate: bool | None = Field(
        None,
        description="update mode: of several rows of one key in an epoch write only the last one; false: "
        "one after the other, so that "
        "`update_where` sees each. Default: true, but false with `update_where`",
    )

    @property
    def takes_last(self) -> bool:
        """Whether only the last row of each key of an epoch is written."""
        return self.update_where is None if self.deduplicate is None else self.deduplicate


class PostgresTableOptions(UpsertOptions, PostgresOptions):
    """Where the rows go, and what happens to one whose key is there already."""
