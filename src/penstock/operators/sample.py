"""A few rows as text, for messages that name the offending ones."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.data.delta import Delta
from penstock.errors import DataError

_ROWS = 3
_WIDTH = 60


def sample(rows: Delta, names: Sequence[str]) -> str:
    """The first rows of a delta as `(id=1, name='a')`, shortened where they are long."""
    shown = []
    for at in range(min(len(rows), _ROWS)):
        values = (
            f"{name}={_short(column[at].as_py())}" for name, column in zip(names, rows.columns, strict=True)
        )
        shown.append(f"({', '.join(values)})")
    more = len(rows) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def with_sample(error: DataError, rows: Delta, names: Sequence[str], *, of: str) -> DataError:
    """Return the error with the changed rows that it concerns: those `of` a group, a partition or an input."""
    message = f"{error.message}; changed rows of the {of}: {sample(rows, names)}"
    return DataError(message, code=error.code, hint=error.hint, where=error.where, condition=error.condition)


def _short(value: object) -> str:
    if value is None:
        return "NULL"
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
