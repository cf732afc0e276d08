"""Opening the state backend that a URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import config
from penstock.backend.address import parse, sqlite_url
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.backend.database import Backend

DIALECTS = Registry(
    "state backend",
    {"sqlite": "penstock.backend.sqlite:Sqlite", "postgresql": "penstock.backend.postgres:Postgres"},
    group="penstock.backends",
)
"""By the scheme of the URL; another package registers a subclass of `penstock.backend.dialect.Dialect`."""


def open_backend(url: str | None = None, *, create: bool = True) -> Backend:
    """Open the state at a URL: `sqlite:///state.db`, `postgresql://user:password@host/database`.

    Without one it is PENSTOCK_STATE, or else `state.db` in PENSTOCK_HOME. What is not there yet is made, unless `create`
    is False.
    """
    address = parse(url or default_url())
    dialect = DIALECTS.load(address.scheme)
    from penstock.backend.database import Backend

    return Backend(address, dialect(), create=create)


def default_url() -> str:
    """The URL that is used when none is given."""
    settings = config.load()
    return settings.state or sqlite_url(settings.home / "state.db")
