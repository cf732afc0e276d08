"""How near vectors are to a constant one: cosine similarity, dot product, Euclidean distance.

`VectorScore` is no function of Spark's; the plans of vector views have it. Its arguments are the vector and a column
that names the row in errors, its options the metric and the constant vector.

The bits of a score depend on the two vectors alone, and not on the batch that a row comes in or on the machine: a
retracted row must give the score that it was inserted with. A matrix product, or a sum over an axis, adds in an order
that depends on shapes, alignment and the processor. So sums are made here of whole columns: each half of the columns
is added to the other one until one column is left. Every step is one operation per number, which IEEE 754 rounds in
one way. Vectors are the columns of a matrix meanwhile: a half is then one piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Floats
from penstock.data.column_view import null_mask, view
from penstock.errors import DataError
from penstock.functions.scalars.base import (
    OVERFLOW,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    from_numbers,
    only,
)
from penstock.functions.scalars.elements import elements_of
from penstock.plan.expression import Call, Column

DIMENSION = "DATA_VECTOR_DIMENSION"
VALUE = "DATA_VECTOR_VALUE"

_CELLS = 1 << 15  # numbers that are scored at a time, so that intermediate ones stay in the cache
# Sums of squares outside of these bounds have overflowed, or lost digits: such vectors are scaled first.
_SMALL, _LARGE = 2.0**-900, 2.0**900

Score = Callable[[Floats], Floats]  # scores of the columns of a matrix, which may be overwritten


def score_function(metric: str, query: Floats) -> Score:
    """Return what scores the columns of a matrix by a metric (cosine, dot or l2) against a vector."""
    column = query[:, None]
    if metric == "l2":
        return lambda vectors: _lengths(vectors - column)
    if metric == "dot":
        return lambda vectors: _sums(vectors * column) + 0.0  # -0.0 becomes 0.0
    scaled = column.copy()
    with np.errstate(over="ignore"):
        squares, _ = _squares(scaled)
    unit = scaled / np.sqrt(squares)

    def cosine(vectors: Floats) -> Floats:
        squares, _ = _squares(vectors)
        similarity = _sums(vectors * unit) / np.sqrt(squares)
        return np.clip(similarity, -1.0, 1.0) + 0.0

    return cosine


def _sums(terms: Floats) -> Floats:
    """The sums of columns; the terms are overwritten."""
    width = len(terms)
    while width > 1:
        half = width // 2
        terms[:half] += terms[width - half : width]
        width -= half
    sums: Floats = terms[0]
    return sums


def _squares(vectors: Floats) -> tuple[Floats, Any]:
    """The sums of squares of vectors; those for which these would leave the range are first scaled, in place, by a power of two.

    The second value has the exponents of these powers, None when there are none.
    """
    squares = _sums(vectors * vectors)
    at = ((squares < _SMALL) | (squares > _LARGE)).nonzero()[0]
    if len(at) == 0:
        return squares, None
    exponents = np.zeros(vectors.shape[1], np.int32)
    exponents[at] = np.frexp(np.abs(vectors[:, at]).max(axis=0))[1]
    scaled = np.ldexp(vectors[:, at], -exponents[at])
    vectors[:, at] = scaled
    squares = squares.copy()
    squares[at] = _sums(scaled * scaled)
    return squares, exponents


def _lengths(vectors: Floats) -> Floats:
    squares, exponents = _squares(vectors)
    lengths: Floats = np.sqrt(squares)
    return lengths if exponents is None else np.ldexp(lengths, exponents)


def _vector_score(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    metric, query = str(call.option("metric")), np.array(call.option("query"), np.float64)
    score, width = score_function(metric, query), len(query)
    block = max(1, _CELLS // width)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        embeddings, names = (array(item(columns, length, tick), length) for item in args)
        split = elements_of(embeddings)
        present = np.ones(length, np.bool_) if split.valid is None else split.valid
        rows = _VectorRows(call, names, present)
        inside = split.columns[0]
        values = view(inside).values
        assert values is not None, "vectors are arrays of floating numbers"
        short = (split.counts != width) & present
        if short.any():
            dimensions = int(split.counts[short.argmax()])
            raise rows.refusal(
                short[present],
                f"has {_count(dimensions)}, and the query has {_count(width)}",
                code=DIMENSION,
            )
        missing = null_mask(inside)
        if missing is not None:
            raise rows.refusal(_any_of(missing, width), "has a NULL in it")
        vectors = values.reshape(-1, width)
        finite = np.isfinite(values)
        if not finite.all():
            raise rows.refusal(_any_of(~finite, width), "has a NaN or an infinity in it")
        if metric == "cosine" and not values.all():
            zero = ~_any_of(values != 0, width)
            if zero.any():
                raise rows.refusal(
                    zero, "is zero in all dimensions, and has no direction to compare by cosine"
                )
        scores = np.empty(len(vectors), np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for start in range(0, len(vectors), block):
                part = slice(start, start + block)
                scores[part] = score(vectors[part].T.astype(np.float64, order="C"))
        beyond = ~np.isfinite(scores)
        if beyond.any():
            raise rows.refusal(beyond, f"is too large: its {metric} score is beyond DOUBLE", code=OVERFLOW)
        if len(scores) == length:
            return pa.array(scores)
        spread = np.zeros(length, np.float64)
        spread[present] = scores
        return from_numbers(spread, present, pa.float64())

    return run


class _VectorRows:
    """The rows that have a vector, by the names that users know them by."""

    def __init__(self, call: Call, names: pa.Array, present: Bools) -> None:
        self._columns = [argument.name if isinstance(argument, Column) else "" for argument in call.args]
        self._names = names
        self._present = present

    def refusal(self, bad: Bools, what: str, *, code: str = VALUE) -> DataError:
        """The error for the first of the bad rows."""
        position = int(self._present.nonzero()[0][bad.argmax()])
        vector, name = self._columns
        more = int(bad.sum()) - 1
        others = f" (and {more} more row{'s' if more > 1 else ''})" if more else ""
        return DataError(
            f"the vector '{vector}' of the row with {name} = {self._names[position].as_py()!r} {what}{others}",
            code=code,
            hint="leave the vector NULL, which is not in the view, or keep such rows out with filter=",
        )


def _any_of(numbers: Bools, width: int) -> Bools:
    """Which vectors have a number that is marked."""
    marked: Bools = np.logical_or.reduce(numbers.reshape(-1, width), axis=1)
    return marked


def _count(dimensions: int) -> str:
    return "1 dimension" if dimensions == 1 else f"{dimensions} dimensions"


FUNCTIONS: dict[str, Scalar] = {"VectorScore": Scalar(_vector_score, only("array", first=1))}
