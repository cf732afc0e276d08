"""The address of a PostgreSQL server, in the options of all that read or write one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from penstock.errors import ConfigError
from penstock.options import mistake

if TYPE_CHECKING:
    from penstock.config import Settings

EXAMPLE = "postgresql://user:password@host:5432/database"


def is_address(url: str) -> bool:
    """Whether the client can read an address; nobody can say without the client."""
    if find_spec("psycopg") is None:
        return True
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        # The message of the client repeats parts of the address, and so perhaps of the password.
        return False
    return True


def _checked(url: str) -> str:
    if not is_address(url):
        raise mistake("is not an address of PostgreSQL", hint=f"for example {EXAMPLE}")
    return url


PostgresUrl = Annotated[str, AfterValidator(_checked)]
"""An address as users write it."""


def completed(url: str | None, settings: Settings, *, what: str, code: str) -> str:
    """Return the address that `what` has, or else that of the settings; a ConfigError when there is none, or that one
    is wrong."""
    if url is not None:
        return url
    if settings.postgres_url is None:
        raise ConfigError(
            f"{what} needs the field 'url'",
            code=code,
            hint=f"add url: {EXAMPLE}, or set PENSTOCK_POSTGRES_URL",
        )
    if not is_address(settings.postgres_url):
        raise ConfigError(
            "PENSTOCK_POSTGRES_URL is not an address of PostgreSQL",
            code="CONFIG",
            hint=f"for example {EXAMPLE}",
        )
    return settings.postgres_url
