"""What a service answers, as rows: which they are, and of which row each was made, where that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.transforms.handler.service import SHOWN, RowsRefused
from penstock.transforms.json_columns.fitted import read_json


@dataclass(frozen=True, slots=True)
class Answer:
    """The objects of an answer."""

    rows: list[Mapping[str, Any]]
    origins: list[int] | None
    """The row of the request that each belongs to; None when that is not known."""


def answered(content: bytes, count: int) -> Answer:
    """Return the answer to a request of so many rows; raises RowsRefused for one that cannot be understood.

    >>> answered(b'[{"id": 1}, null]', 2)
    Answer(rows=[{'id': 1}], origins=[0])
    >>> answered(b'[{"id": 1}, {"id": 2}]', 1)
    Answer(rows=[{'id': 1}, {'id': 2}], origins=[0, 0])
    >>> answered(b'{"id": 1}', 3).origins, answered(b"", 3).rows
    (None, [])
    """
    if not content.strip():
        return Answer([], [])
    try:
        value = read_json(content)
    except (ValueError, RecursionError):
        raise RowsRefused(f"the service answers what is no JSON: {_shown(content)}") from None
    items = value if isinstance(value, list) else [value]
    rows = [(index, item) for index, item in enumerate(items) if item is not None]
    if not all(isinstance(item, dict) for _, item in rows):
        raise RowsRefused(f"the service answers something else than objects: {_shown(content)}")
    origins: list[int] | None = None
    if count == 1:
        origins = [0] * len(rows)
    elif isinstance(value, list) and len(items) == count:
        origins = [index for index, _ in rows]
    elif not rows:
        origins = []
    return Answer([item for _, item in rows], origins)


def _shown(content: bytes) -> str:
    text = content[:SHOWN].decode(errors="replace").strip()
    return text if len(content) <= SHOWN else f"{text}..."
