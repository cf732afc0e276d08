"""What differs between the databases that can hold the state: connecting, their clock, locks and refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, ColumnElement, Connection, Engine, literal_column

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
    from sqlalchemy.exc import SQLAlchemyError

    from penstock.backend.address import Address

BUSY_SECONDS = 5.0
"""How long one statement waits for another process's transaction."""

READ_ONLY = "penstock_read_only"
"""The execution option of a transaction that only reads, which then waits for nobody."""


class Dialect(ABC):
    """One kind of database; a backend of another package is a subclass of this, handed to `Backend`."""

    clock: str
    """The database's present time in milliseconds since 1970, as SQL that is evaluated when its statement runs."""

    def now(self) -> ColumnElement[int]:
        """The database's present time, for use in any statement."""
        return literal_column(self.clock, BigInteger)

    @abstractmethod
    def connect(self, address: Address, *, create: bool) -> Engine:
        """Called once, to make the engine; raises when the address cannot work."""

    @abstractmethod
    def insert(self, table: Table) -> PostgresInsert | SqliteInsert:
        """An INSERT that knows ON CONFLICT."""

    @abstractmethod
    def lock_schema(self, connection: Connection) -> None:
        """Called before the tables are looked at: no other process may change them until the transaction ends."""

    @abstractmethod
    def explain(self, error: SQLAlchemyError, location: str) -> PenstockError | None:
        """What an error of the database means for the user; None when it is a fault of ours."""
