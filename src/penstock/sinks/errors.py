"""What a database says no to, in the same words for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ConnectorError, DataError, PenstockError


def refused(system: str, text: str, *, where: str) -> PenstockError:
    """The error for what the system itself refuses: the address, the user, a statement."""
    return ConnectorError(
        f"{system} refuses: {text}",
        code="SINK_REFUSED",
        where=where,
        hint="check the address, the user and its rights",
    )


def row_refused(system: str, text: str, *, where: str, hint: str) -> PenstockError:
    """The error for a row that the system does not take; the hint says what has become of the batch."""
    return DataError(f"{system} refuses a row: {text}", code="SINK_ROW_REFUSED", where=where, hint=hint)


def require_fit(wrong: Sequence[str], *, where: str) -> None:
    """Refuse rows for a table, with all that does not fit, if anything does not."""
    if wrong:
        raise DataError(
            f"the query's rows do not fit the table: {'; '.join(wrong)}",
            code="STREAM_SCHEMA_CHANGED",
            where=where,
            hint="cast the columns in the query, change the table, or write to another one",
        )
