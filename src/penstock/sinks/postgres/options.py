"""The options of the Postgres sink."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from pydantic import Field, field_validator

from penstock.options import FromSetting, mistake
from penstock.sinks.server import ServerOptions

EXAMPLE = "postgresql://user:password@host:5432/database"


class PostgresOptions(ServerOptions):
    """Where the rows go, and whether the sink may create the table."""

    table: str = Field(description="`table` or `schema.table`")
    url: Annotated[str, FromSetting("postgres_url", EXAMPLE)] = Field(
        repr=False, description=f"the address of the database, `{EXAMPLE}`"
    )
    create: bool = Field(
        True, description="create the table when it is missing, and add columns that are new in the query"
    )

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if find_spec("psycopg") is None:
            return url
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            conninfo_to_dict(url)
        except ProgrammingError as error:
            raise mistake(
                f"is not an address of PostgreSQL: {error}", hint=f"for example {EXAMPLE}"
            ) from None
        return url
