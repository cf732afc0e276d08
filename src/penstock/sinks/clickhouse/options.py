"""The options of the ClickHouse sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, Field, field_validator

from penstock.options import Count, Duration, Expressions, FromSetting, Texts
from penstock.sinks.clickhouse.client import ClickHouseAddress, Url
from penstock.sinks.server import ServerOptions

EXAMPLE = "http://user:password@host:8123/database"


class ClickHouseOptions(ServerOptions):
    """Where the rows go, and how a table is created."""

    table: str = Field(description="`table` or `database.table`")
    url: Annotated[Url, FromSetting("clickhouse_url", EXAMPLE)] = Field(
        repr=False, description=f"the address of the server, `{EXAMPLE}` or `https://...:8443/...`"
    )
    user: str | None = Field(None, description="the user, where the address has none")
    password: str | None = Field(None, repr=False, description="the password, where the address has none")
    database: str | None = Field(None, description="the database, where the address has none")
    create: bool = Field(
        True, description="create the table when it is missing, and add columns that are new in the query"
    )
    version: str | None = Field(
        None,
        validation_alias=AliasChoices("version", "version_column_name"),
        description="update mode: the column of the query that says which row of a key is newest; default: the sink counts in a "
        "column `_version`",
    )
    order_by: Expressions | None = Field(
        None,
        description="append mode: the sorting key of a table that the sink creates, as in SQL; default: "
        "the key of the rows, or none",
    )
    partition_by: Expressions | None = Field(
        None, description="the partitions of a table that the sink creates, as in SQL"
    )
    batch_rows: Count = Field(
        100_000,
        description="rows per insert; Spark's tasks insert a larger epoch in chunks side by side, for "
        "which the machines of a cluster need penstock too",
    )
    settings: Texts = Field(
        {}, description='settings of ClickHouse for every request, for example `{"insert_quorum": 2}`'
    )
    timeout: Duration = Field("5 minutes", validate_default=True, description="how long one request may take")

    @field_validator("settings", mode="before")
    @classmethod
    def _as_numbers(cls, settings: Any) -> Any:
        """ClickHouse writes true and false as 1 and 0."""
        if not isinstance(settings, Mapping):
            return settings
        return {name: int(value) if isinstance(value, bool) else value for name, value in settings.items()}

    def address(self) -> ClickHouseAddress:
        """Return the address with what the other options say."""
        return ClickHouseAddress.of(self.url).completed(
            user=self.user,
            password=self.password,
            database=self.database,
            settings=self.settings,
            timeout_ms=self.timeout,
        )


class ClickHouseTableOptions(ClickHouseOptions):
    """How the table of a query takes deletes."""

    append_only_mode: bool = Field(
        True,
        description="update mode, in a table that the sink creates: deletes are inserted as rows whose "
        "column `_deleted` is 1, which `FINAL` "
        "leaves out; false: they are `DELETE` statements, which are slow when there are many. "
        "A table that is there has its own way: "
        "with a second argument of `ReplacingMergeTree` it is the first one",
    )
