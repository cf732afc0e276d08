"""Opening the state backend that a URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.backend.address import parse, sqlite_url
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.backend.backend import Backend
    from penstock.config import Settings

DIALECTS = Registry(
    "state backend",
    {"sqlite": "penstock.backend.sqlite:Sqlite", "postgresql": "penstock.backend.postgres:Postgres"},
    group="penstock.backends",
)
"""By the scheme of the URL; another package registers a subclass of `penstock.backend.dialect.Dialect`."""


def open_backend(state: str | Settings, *, create: bool = True) -> Backend:
    """Open a state database by its URL, `sqlite:///state.db` or `postgresql://user:password@host/database`, or that of settings.

    It is created when it does not exist, unless `create` is False.
    """
    address = parse(state if isinstance(state, str) else state_url(state))
    dialect = DIALECTS.load(address.scheme)
    from penstock.backend.backend import Backend

    return Backend(address, dialect(), create=create)


def state_url(settings: Settings) -> str:
    """Return the URL of the state that settings name, or else of `state.db` in the home of penstock."""
    return settings.state or sqlite_url(settings.home / "state.db")
