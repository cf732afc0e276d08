"""The naive twin of vector views: every row scored on its own in plain Python, all rows sorted, the first ones taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[int | None, str | None, Sequence[float] | None]  # id, title, vector


def halved(terms: Sequence[float]) -> float:
    """A sum in the order that is documented: the halves of the terms are added until one is left."""
    terms = list(terms)
    while len(terms) > 1:
        half = len(terms) // 2
        last = terms[len(terms) - half :]
        terms = [a + b for a, b in zip(terms[:half], last, strict=True)] + terms[half : len(terms) - half]
    return terms[0]


def score(metric: str, query: Sequence[float], vector: Sequence[float]) -> float:
    """The score of one vector, for numbers of ordinary size."""
    if metric == "dot":
        return halved([a * b for a, b in zip(vector, query, strict=True)]) + 0.0
    if metric == "l2":
        return math.sqrt(halved([(a - b) * (a - b) for a, b in zip(vector, query, strict=True)]))
    length = math.sqrt(halved([a * a for a in query]))
    unit = [a / length for a in query]
    dot = halved([a * b for a, b in zip(vector, unit, strict=True)])
    return max(-1.0, min(1.0, dot / math.sqrt(halved([a * a for a in vector])))) + 0.0


def nearest(
    rows: Sequence[Row], queries: Mapping[Any, Sequence[float]], metric: str, k: int
) -> list[tuple[Any, ...]]:
    """The rows of the view in its order: label of the query, id, score, title."""
    result: list[tuple[Any, ...]] = []
    for label in sorted(queries):
        scored = [
            (label, id_, score(metric, queries[label], vector), title)
            for id_, title, vector in rows
            if vector is not None
        ]
        direction = 1 if metric == "l2" else -1
        scored.sort(key=lambda row: (direction * row[2], _null_first(row[1]), _null_first(row[3])))
        result += scored[:k]
    return result


def _null_first(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, value)
