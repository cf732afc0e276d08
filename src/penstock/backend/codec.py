"""How values are stored: JSON that every database takes, and times in milliseconds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, overload


def to_json(value: Any) -> str:
    """Return the JSON text of a value; NaN, which JSON does not have, and what has no JSON form become text.

    >>> to_json({"rate": float("nan"), 1: (2, 3)})
    '{"rate":"nan","1":[2,3]}'
    """
    return json.dumps(_plain(value), default=str, allow_nan=False, separators=(",", ":"))


def as_stored(value: Any) -> Any:
    """Return the value as the database will return it."""
    return json.loads(to_json(value))


@overload
def to_datetime(milliseconds: int) -> datetime: ...
@overload
def to_datetime(milliseconds: None) -> None: ...
def to_datetime(milliseconds: int | None) -> datetime | None:
    """Return a stored time, in UTC.

    >>> to_datetime(1_500).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
