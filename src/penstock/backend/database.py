"""The database of a state backend: its connections and transactions, and its errors in penstock's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from penstock.backend.address import Address, hidden
from penstock.backend.codec import to_datetime
from penstock.backend.dialect import READ_ONLY, Dialect
from penstock.backend.table import STEPS, prepare, version
from penstock.errors import InternalError


class Database:
    """One database with the tables of penstock; any thread may use it."""

    def __init__(self, address: Address, dialect: Dialect, *, create: bool = True) -> None:
        self.location = address.location
        # With its password: only to be handed on to other processes.
        self.url = address.url
        self.dialect = dialect
        self._engine = dialect.connect(address, create=create)
        try:
            with self.reading() as connection:
                current = version(connection) == len(STEPS)
            if not current:
                with self.transaction() as connection:
                    prepare(connection, dialect, create=create, location=self.location)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that may write, committed at the end of the block; keep it short, others wait for it.

        One that writes for a job is fenced: `backend.leases.fenced(lease)`.
        """
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads, and waits for no other."""
        with (
            self._translated(),
            self._engine.connect().execution_options(**{READ_ONLY: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def now(self) -> datetime:
        """The present time on the database's clock."""
        with self.reading() as connection:
            return to_datetime(connection.execute(select(self.dialect.now())).scalar_one())

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            translated = self.dialect.explain(error, self.location)
            if translated is None:
                text = hidden(str(getattr(error, "orig", error)).strip().partition("\n")[0])
                translated = InternalError(
                    f"the state database refused a statement: {text}",
                    code="INTERNAL_STATE",
                    where=self.location,
                )
            raise translated from error
