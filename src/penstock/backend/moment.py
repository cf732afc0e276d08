"""Times of the database as Python's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def moment(milliseconds: int) -> datetime: ...
@overload
def moment(milliseconds: None) -> None: ...
def moment(milliseconds: int | None) -> datetime | None:
    """A stored time, in UTC.

    >>> moment(1_500).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)
