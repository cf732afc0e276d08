"""The options of the sources that read PostgreSQL."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import Field, field_validator

from penstock.options import Count, Duration, FromSetting, Names, Options, Texts, mistake
from penstock.sources.postgres.address import EXAMPLE, PostgresUrl

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class TableOptions(Options):
    """Which table is read, and how its values become columns."""

    table: str = Field(description="`table` or `schema.table`")
    url: Annotated[PostgresUrl, FromSetting("postgres_url", EXAMPLE)] = Field(
        repr=False, description=f"the address of the database, `{EXAMPLE}`"
    )
    namespace: str | None = Field(
        None,
        validation_alias="schema",
        description="the schema of the table, when `table` does not name it; default: the user's search path decides",
    )
    columns: Names = Field((), description="the columns to read; default: all of them")
    primary_key: Names = Field(
        (), description="the columns that tell rows apart; default: the table's own primary key"
    )
    types: Texts = Field(
        {},
        description="other types for some columns: `string` reads any column as the text that Postgres "
        "writes, and a `numeric` may be read "
        "as `decimal(precision,scale)` or `double`",
    )
    special_values: Literal["fail", "null"] = Field(
        "fail",
        description="what happens to NaN and infinity of `numeric` and to infinite dates and timestamps, "
        "which Spark has no values for: "
        "`fail`, or `null`",
    )
    partitions: Count | None = Field(
        None,
        description="how many ranges of the key are read side by side; default: one for every 32 MB, 8 at most",
    )
    retry_for: Duration = Field(
        "5 minutes",
        validate_default=True,
        description="how long the source waits for a server that does not answer; then the query fails",
    )

    @property
    def database(self) -> str | None:
        """The name of the database in the address; None when the server is to choose, or the driver is not there."""
        if find_spec("psycopg") is None:
            return None
        from psycopg.conninfo import conninfo_to_dict

        name = conninfo_to_dict(self.url).get("dbname")
        return None if name is None else str(name)


class PostgresOptions(TableOptions):
    """Which rows of a table are read."""

    filter: str | None = Field(
        None, description="only rows for which this condition of Postgres' SQL holds, as in `amount > 100`"
    )


class PostgresCdcOptions(TableOptions):
    """Which table is followed, and through which slot and publication."""

    slot: str | None = Field(
        None,
        description="the replication slot; default: one with the name of the pipeline and the node. It is "
        "created when it is missing, and "
        "stays when the pipeline stops: Postgres then keeps its log for it",
    )
    publication: str | None = Field(
        None, description="the publication; default: one with the name of the slot"
    )
    create: bool = Field(
        True,
        description="create the publication and the slot when they are missing, and drop them with the state",
    )
    snapshot: Literal["initial", "never"] = Field(
        "initial",
        description="`initial` begins with the rows that are there, `never` with the changes that come after the first start",
    )
    replica_identity: Literal["keep", "full"] = Field(
        "keep",
        description="`full` sets REPLICA IDENTITY FULL on the table at the first start: deletes then "
        "carry all old values, and large values "
        "that an update did not touch come with it",
    )
    on_truncate: Literal["fail", "ignore"] = Field(
        "fail",
        description="what a TRUNCATE of the table does, which does not say which rows are gone: `fail`, "
        "or `ignore`, which keeps them downstream",
    )
    max_rows: Count = Field(
        200_000,
        description="how many changes one epoch takes at most; a transaction is never split, however large it is",
    )

    @field_validator("slot")
    @classmethod
    def _is_slot(cls, slot: str | None) -> str | None:
        if slot is not None and _SLOT.fullmatch(slot) is None:
            raise mistake(
                f"is no name of a slot: {slot!r}",
                hint="lower-case letters, digits and underscores, 63 at most",
            )
        return slot
