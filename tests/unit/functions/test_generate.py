from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.data.tick import Tick
from penstock.data.types import kernel_type
from penstock.functions.generate import compile_generator
from penstock.plan.expression import Call, Column, Literal

TICK = Tick(1, 0)
LISTS = [[1, 2], None, [], [3, None]]


def _rows(
    call: Call, columns: list[pa.Array], types: list[str], outer: bool = False
) -> list[tuple[Any, ...]]:
    run = compile_generator(call, [kernel_type(kind) for kind in types], outer=outer)
    parents, made = run(columns, len(columns[0]), TICK)
    return sorted(
        zip(parents.tolist(), *(column.to_pylist() for column in made), strict=True),
        key=lambda row: (row[0], str(row[1:])),
    )


@pytest.mark.parametrize("slice_from", [0, 1])
def test_explode_and_posexplode(slice_from: int) -> None:
    column = pa.array([[9]] * slice_from + LISTS, kernel_type("array<int>"))[slice_from:]
    explode = Call("Explode", (Column(0, "array<int>"),), "")
    assert _rows(explode, [column], ["int"]) == [(0, 1), (0, 2), (3, 3), (3, None)]
    assert _rows(explode, [column], ["int"], outer=True) == [
        (0, 1),
        (0, 2),
        (1, None),
        (2, None),
        (3, 3),
        (3, None),
    ]
    place = Call("PosExplode", (Column(0, "array<int>"),), "")
    assert _rows(place, [column], ["int", "int"], outer=True)[:3] == [(0, 0, 1), (0, 1, 2), (1, None, None)]


def test_maps_and_structs() -> None:
    maps = pa.array([[("a", 1)], None, [("b", None), ("c", 3)]], kernel_type("map<string,int>"))
    explode = Call("Explode", (Column(0, "map<string,int>"),), "")
    assert _rows(explode, [maps], ["string", "int"]) == [(0, "a", 1), (2, "b", None), (2, "c", 3)]
    structs = pa.array([[{"x": 1, "y": "p"}, None], []], kernel_type("array<struct<x:int,y:string>>"))
    inline = Call("Inline", (Column(0, "array<struct<x:int,y:string>>"),), "")
    assert _rows(inline, [structs], ["int", "string"]) == [(0, 1, "p"), (0, None, None)]


def test_stack_and_replicate() -> None:
    column = pa.array([10, 20], pa.int32())
    stack = Call(
        "Stack", (Literal(2, "int"), Column(0, "int"), Literal("x", "string"), Literal(7, "int")), ""
    )
    assert _rows(stack, [column], ["int", "string"]) == [
        (0, 10, "x"),
        (0, 7, None),
        (1, 20, "x"),
        (1, 7, None),
    ]
    replicate = Call("ReplicateRows", (Column(0, "bigint"), Column(1, "int")), "")
    times = pa.array([2, 0], pa.int64())
    assert _rows(replicate, [times, column], ["int"]) == [(0, 10), (0, 10)]
