"""What servers refuse, in the same words for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ConnectorError, DataError, PenstockError

ROW_REFUSED = "SINK_ROW_REFUSED"
"""The code of an error about the values of a row: the same row would be refused again, and others may be taken."""


def refused(system: str, text: str, *, where: str) -> PenstockError:
    """Return the error for a server that refuses the address, the user or a statement."""
    return ConnectorError(
        f"{system} refuses: {text}",
        code="SINK_REFUSED",
        where=where,
        hint="check the address, the user and its rights",
    )


def row_refused(system: str, text: str, *, where: str, hint: str) -> PenstockError:
    """Return the error for a row that a server does not take; the hint says what became of the batch."""
    return DataError(f"{system} refuses a row: {text}", code=ROW_REFUSED, where=where, hint=hint)


def require_fit(misfits: Sequence[str], *, where: str) -> None:
    """Refuse rows for a table when something does not fit, with everything that does not."""
    if misfits:
        raise DataError(
            f"the query's rows do not fit the table: {'; '.join(misfits)}",
            code="STREAM_SCHEMA_CHANGED",
            where=where,
            hint="cast the columns in the query, change the table, or write to another one",
        )
