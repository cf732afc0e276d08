"""What is stored as JSON: any value that callers give, made fit for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(value: Any) -> str:
    """The JSON text of a value; NaN, which JSON does not have, and what has no JSON form become text.

    >>> dumps({"rate": float("nan"), 1: (2, 3)})
    '{"rate":"nan","1":[2,3]}'
    """
    return json.dumps(_plain(value), default=str, allow_nan=False, separators=(",", ":"))


def as_stored(value: Any) -> Any:
    """The value as it will come back."""
    return json.loads(dumps(value))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
