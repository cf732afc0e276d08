"""Generators: functions that make several rows or columns of one value (explode, posexplode, inline, stack, json_tuple).

A compiled generator returns, for every generated row, the position of its parent, and the generated columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.errors import InternalError
from penstock.functions import evaluate
from penstock.functions.json import path
from penstock.functions.scalars.base import TickLike, typed
from penstock.plan.expression import Call, Expression, Literal

Generated = tuple[Positions, tuple[pa.Array, ...]]
Generator = Callable[[Sequence[pa.Array], int, TickLike], Generated]


def compile_generator(generator: Expression, types: Sequence[pa.DataType], *, outer: bool) -> Generator:
    """Prepare a generator whose columns have the given types; `outer` keeps parents without rows, with NULLs."""
    assert isinstance(generator, Call)
    arguments = [evaluate.compile(argument) for argument in generator.args]
    make = _MAKERS.get(generator.name)
    if make is None:
        raise InternalError(f"the kernel does not know the generator {generator.name}")

    def run(columns: Sequence[pa.Array], rows: int, tick: TickLike) -> Generated:
        values = [argument(columns, rows, tick) for argument in arguments]
        parents, generated = make(generator, values, rows, outer)
        return parents, tuple(typed(column, kind) for column, kind in zip(generated, types, strict=True))

    return run


def _explode(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    parents, _, inside = _elements(values[0], outer)
    return parents, inside


def _posexplode(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    parents, positions, inside = _elements(values[0], outer)
    missing = positions < 0
    position = pa.array(positions.astype(np.int32), pa.int32(), mask=missing if missing.any() else None)
    return parents, (position, *inside)


def _inline(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    parents, _, (structs,) = _elements(values[0], outer)
    return parents, tuple(structs.flatten())


def _stack(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    count = call.args[0]
    assert isinstance(count, Literal)
    height, cells = int(count.value), values[1:]
    width = -(-len(cells) // height)
    columns = []
    for column in range(width):
        picked = [
            cells[row * width + column] if row * width + column < len(cells) else None
            for row in range(height)
        ]
        kind = next(cell.type for cell in picked if cell is not None)
        columns.append(
            pa.concat_arrays([pa.nulls(rows, kind) if cell is None else cell.cast(kind) for cell in picked])
        )
    return np.tile(np.arange(rows), height), tuple(columns)


def _replicate(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    times = values[0].fill_null(0).to_numpy(zero_copy_only=False)
    parents = np.repeat(np.arange(rows), np.maximum(times, 0))
    chosen = pa.array(parents)
    return parents, tuple(value.take(chosen) for value in values[1:])


def _elements(column: pa.Array, outer: bool) -> tuple[Positions, Positions, tuple[pa.Array, ...]]:
    """The elements of lists or maps: the parent and the position (-1: none) of each, and the columns inside."""
    offsets: Positions = np.asarray(column.offsets).astype(np.int64)
    lengths: Positions = offsets[1:] - offsets[:-1]
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    counts = np.maximum(lengths, 1) if outer else lengths
    parents = np.repeat(np.arange(len(column)), counts)
    begins = np.cumsum(counts) - counts
    positions = np.arange(len(parents)) - np.repeat(begins, counts)
    positions = np.where(np.repeat(lengths, counts) == 0, -1, positions)
    there = np.repeat(offsets[:-1], counts) + positions
    chosen = pa.array(there, pa.int64(), mask=positions < 0 if (positions < 0).any() else None)
    if pa.types.is_map(column.type):
        return parents, positions, (column.keys.take(chosen), column.items.take(chosen))
    return parents, positions, (column.values.take(chosen),)


def _json_tuple(call: Call, values: Sequence[Any], rows: int, outer: bool) -> Generated:
    texts, *names = (value.to_pylist() for value in values)
    width, java = len(names), int(call.option("java"))
    nothing = (None,) * width
    fields = [
        nothing if text is None else path.fields(text, row, java)
        for text, row in zip(texts, zip(*names, strict=True), strict=True)
    ]
    columns = zip(*fields, strict=True) if fields else [()] * width
    return np.arange(rows), tuple(pa.array(column, pa.large_string()) for column in columns)


_MAKERS: dict[str, Callable[[Call, Sequence[Any], int, bool], Generated]] = {
    "Explode": _explode,
    "PosExplode": _posexplode,
    "Inline": _inline,
    "Stack": _stack,
    "ReplicateRows": _replicate,
    "JsonTuple": _json_tuple,
}
GENERATORS = frozenset(_MAKERS)
