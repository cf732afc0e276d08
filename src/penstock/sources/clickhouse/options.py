"""The options of the ClickHouse source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, Field, field_validator, model_validator

from penstock.options import Count, Duration, FromSetting, Names, Options, Texts, mistake
from penstock.sources.clickhouse.client import ClickHouseAddress, Url

if TYPE_CHECKING:
    from typing import Self

EXAMPLE = "http://user:password@host:8123/database"


class ClickHouseOptions(Options):
    """Which rows, and how many at once."""

    table: str = Field(
        validation_alias=AliasChoices("table", "table_name"), description="`table` or `database.table`"
    )
    url: Annotated[Url, FromSetting("clickhouse_url", EXAMPLE)] = Field(
        repr=False, description=f"the address of the server, `{EXAMPLE}` or `https://...:8443/...`"
    )
    user: str | None = Field(None, description="the user, where the address has none")
    password: str | None = Field(None, repr=False, description="the password, where the address has none")
    database: str | None = Field(None, description="the database, where the address has none")
    columns: Names = Field((), description="the columns that are read; default: all, as `SELECT *` has them")
    filter: str | None = Field(
        None, description="a condition in ClickHouse's SQL; only rows for which it is true are read"
    )
    cursor: str | None = Field(
        None,
        description="a column that only grows, such as an id, a block number or a time of insertion: rows "
        "beyond its greatest value at the first "
        "start are not read",
    )
    start_at: str | None = Field(
        None,
        description="the least value of `cursor`, or else of the first column of the table's sorting key, that is read",
    )
    until: str | None = Field(
        None, description="with `cursor`: the greatest value that is read, instead of the greatest there is"
    )
    primary_key: Names = Field(
        (),
        description="the columns that tell rows apart; a table without a sorting key is read in ranges of the first one",
    )
    final: bool | None = Field(
        None,
        description="read with `FINAL`, so that rows that replace each other are one; default: true for "
        "engines that merge rows, such as ReplacingMergeTree",
    )
    batch_size: Count = Field(1_000_000, description="about how many rows one epoch reads")
    parallelism: Count | None = Field(
        None, description="how many ranges of an epoch are read side by side; default: one per core"
    )
    settings: Texts = Field(
        {}, description="settings of ClickHouse for every request, such as `{max_threads: 2}`"
    )
    timeout: Duration = Field(
        "5 minutes", validate_default=True, description="how long the server may be silent in a request"
    )

    @field_validator("start_at", "until", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Dates and times of YAML are those of Python."""
        return value if value is None or isinstance(value, str) else str(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.until is not None and self.cursor is None:
            raise mistake("until needs cursor, the column whose values it bounds", hint="add cursor")
        return self

    def address(self) -> ClickHouseAddress:
        """Return the address with what the other options say."""
        return ClickHouseAddress.of(self.url).completed(
            user=self.user,
            password=self.password,
            database=self.database,
            settings=self.settings,
            timeout_ms=self.timeout,
        )
