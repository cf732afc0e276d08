"""The state backend: one database, and the four things that it keeps."""

from __future__ import annotations

from typing import Self

from penstock.backend.address import Address
from penstock.backend.database import Database
from penstock.backend.dialect import Dialect
from penstock.backend.epoch import Epochs
from penstock.backend.job import Jobs
from penstock.backend.key_value import StoredValues
from penstock.backend.lease import Leases


class Backend(Database):
    """Jobs, leases, epochs and values in one database; any thread may use it.

    `open_backend` makes one from a URL.
    """

    def __init__(self, address: Address, dialect: Dialect, *, create: bool = True) -> None:
        super().__init__(address, dialect, create=create)
        self.leases = Leases(self)
        self.jobs = Jobs(self, self.leases)
        self.epochs = Epochs(self, self.leases)
        self.state = StoredValues(self, self.leases)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Backend({self.location!r})"
