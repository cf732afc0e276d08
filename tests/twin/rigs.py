"""Every operator that keeps state, ready to be stepped: for tests of what must hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.circuit.circuit import Circuit
from penstock.circuit.compile import Shared
from penstock.circuit.recursive import ViewCompiler
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.functions import evaluate
from penstock.operators.aggregate import Aggregate
from penstock.operators.arrange import Arrange
from penstock.operators.asof import Asof
from penstock.operators.base import Operator
from penstock.operators.closing import Closing
from penstock.operators.contents import Contents
from penstock.operators.join import Join
from penstock.operators.linear import Feed, Filter
from penstock.operators.open_rows import ArrangeOpen
from penstock.operators.output import Output
from penstock.operators.semijoin import NotIn, SemiJoin
from penstock.operators.session import SessionWindow
from penstock.operators.single import Single
from penstock.operators.source import Source
from penstock.operators.temporal import TemporalFilter, Timed
from penstock.operators.topk import TopK
from penstock.operators.window import Window
from penstock.plan import node as plan
from penstock.plan.event_time import WatermarkBound
from penstock.plan.expiry import Passed
from penstock.plan.expression import Call as Expression
from penstock.plan.expression import Column, Literal
from penstock.plan.node import AggregateCall as Call
from penstock.plan.node import Field, Frame, SortKey, WindowCall
from penstock.state.arrangement import Arrangement, Selected
from penstock.state.data_file import ImageReader, ImageWriter
from penstock.state.files import LocalFiles
from penstock.state.limits import LIMITS
from penstock.state.state import Composite, Image
from twin.rows import types_of
from twin.tick import end_tick

NAMES = ("bigint", "double", "string", "decimal", "bool")
TYPES = types_of(NAMES)
OPTIONS = (("evalMode", "TRY"),)
CALLS = (
    Call("Count", (), "bigint"),
    Call("Count", (2,), "bigint", distinct=True),
    Call("CountIf", (4,), "bigint"),
    Call("Sum", (1,), "double"),
    Call("Average", (1,), "double", filter=4),
    Call("Sum", (3,), "decimal(30,2)", options=OPTIONS),
    Call("Sum", (0,), "bigint", distinct=True, options=OPTIONS),
    Call("StddevSamp", (1,), "double"),
    Call("Kurtosis", (1,), "double"),
    Call("BitXorAgg", (0,), "bigint"),
    Call("Min", (1,), "double"),
    Call("Max", (1,), "double"),
    Call("Min", (2,), "string"),
    Call("MaxBy", (2, 3), "string"),
    Call("Last", (2,), "string"),
    Call("CollectList", (2,), "array<string>"),
    Call("Percentile", (1,), "double"),
)

COUNTED = (
    Call("Percentile", (1, 0), "double"),
    Call("Mode", (2,), "string"),
    Call("CollectSet", (1,), "array<double>"),
    Call("HyperLogLogPlusPlus", (2,), "bigint", options=(("precision", 4), ("threshold", "10"))),
)
LISTED = (Literal("a", "string"), Literal(None, "string"), Literal("", "string"))
FIELDS = tuple(
    Field(name, kind)
    for name, kind in zip("kdtnb", ("bigint", "double", "string", "decimal(20,2)", "boolean"), strict=True)
)


@dataclass(frozen=True, slots=True)
class Rig:
    """Operators that are stepped together: each gets the inputs of the rig, or those that `inputs` names by number."""

    operators: Sequence[tuple[Operator, tuple[int, ...]]]
    with_key: bool = False  # rows without a value in the first column are refused

    def initial(self) -> None:
        """Begin."""
        for operator, _ in self.operators:
            operator.initial(Tick(0, 0))

    def step(self, deltas: Sequence[Delta], tick: Tick) -> list[Delta]:
        """What all operators give."""
        if self.with_key:
            deltas = [
                delta.take(np.flatnonzero(delta.columns[0].is_valid().to_numpy(zero_copy_only=False)))
                for delta in deltas
            ]
        return [operator.step([deltas[at] for at in inputs], tick) for operator, inputs in self.operators]

    def commit(self) -> None:
        """Make it final, without `maintain`."""
        for operator, _ in self.operators:
            operator.commit()

    def rollback(self) -> None:
        """Take the last step back."""
        for operator, _ in self.operators:
            operator.rollback()

    def maintain(self) -> None:
        """Merge and compact."""
        for operator, _ in self.operators:
            operator.maintain(LIMITS.fuel)

    def end_tick(self) -> None:
        """Commit and maintain."""
        for operator, _ in self.operators:
            end_tick(operator)

    def contents(self) -> list[Delta]:
        """All rows of the operators that can tell them."""
        contents = [operator.contents() for operator, _ in self.operators if hasattr(operator, "contents")]
        return [rows.now() if isinstance(rows, Contents) else rows for rows in contents]

    def save(self) -> list[Image]:
        """All states."""
        return [operator.save() for operator, _ in self.operators]

    def load(self, images: Sequence[Image]) -> None:
        """Be what was saved."""
        for (operator, _), image in zip(self.operators, images, strict=True):
            operator.load(image)


def aggregate_rig(*keys: int, calls: Sequence[Call] = CALLS) -> Rig:
    """Aggregates by key columns."""
    return Rig([(Aggregate(TYPES, keys, calls), (0,))])


def _closing() -> Rig:
    """Groups by a number that is taken for a time."""
    make = partial(Aggregate, TYPES, (0, 2), CALLS[:4])
    return Rig([(Closing(make, 0, WatermarkBound((("numbers", 0),))), (0,))])


NUMBERS = WatermarkBound((("numbers", 0),))


def _forgetting() -> Rig:
    """Operators that forget behind a watermark, each over the same rows."""
    top = partial(TopK, TYPES, (0, 2), (SortKey(1, True, False), SortKey(2)), 2, rank_field=True)
    asof = partial(
        Asof,
        TYPES,
        TYPES,
        left_keys=(2,),
        right_keys=(2,),
        left_time=0,
        right_time=0,
        times=(NUMBERS, NUMBERS),
    )
    return Rig(
        [
            (Closing(top, 0, NUMBERS), (0,)),
            (ArrangeOpen(TYPES, (0,), (Passed(0, 1, NUMBERS),)), (0,)),
            (SessionWindow(TYPES, (2,), start=0, end=0, time=NUMBERS), (0,)),
            (asof(), (0, 1)),
            (asof(direction="forward"), (0, 1)),
            (asof(direction="nearest", tolerance=1), (0, 1)),
        ]
    )


def _topk(*partition: int, limit: int | None = 2, rank: bool = False) -> Rig:
    order = (SortKey(1, True, False), SortKey(2))
    return Rig([(TopK(TYPES, partition, order, limit, offset=1, rank_field=rank), (0,))])


def _window() -> Rig:
    calls = (
        WindowCall("Rank", (), "int", Frame("rows", None, 0)),
        WindowCall("Sum", (1,), "double", Frame("rows", -1, 1)),
    )
    return Rig([(Window(TYPES, (0,), (SortKey(1),), calls), (0,))])


def _joined(make: Callable[[Arrangement, Arrangement], Operator]) -> Callable[[], Rig]:
    def rig() -> Rig:
        left, right = Arrangement(TYPES, (0,)), Arrangement(TYPES, (0,))
        join = make(left, right)
        return Rig([(Arrange(left), (0,)), (Arrange(right), (1,)), (join, (0, 1))])

    return rig


def _selected_join() -> Rig:
    left, right = Arrangement(TYPES, (0,)), Arrangement(TYPES, (0,))
    some = Selected(right, (0, 2))
    return Rig([(Arrange(left), (0,)), (Arrange(right), (1,)), (Join("inner", left, some), (0, 1))])


def _asof() -> Rig:
    operator = Asof(
        TYPES, TYPES, left_keys=(2,), right_keys=(2,), left_time=0, right_time=0, direction="nearest"
    )
    return Rig([(operator, (0, 1))])


def _session(*keys: int) -> Rig:
    """Rows that last from nothing to two, and begin from two before zero to two behind it."""
    return Rig([(SessionWindow(TYPES, keys, start=0, end=0), (0,))])


def _timed() -> Rig:
    keep = Filter(evaluate.compile(Column(4, "boolean")))

    def evaluated(rows: Delta, tick: Tick) -> Delta:
        passed = keep.step([rows], tick)
        return passed if tick.micros % 2 else rows

    return Rig([(Timed(TYPES, evaluated), (0,))])


def _temporal() -> Rig:
    def key(columns: Sequence[pa.Array], rows: int, tick: Tick) -> tuple[Any, Any]:
        return (
            columns[0].fill_null(0).to_numpy(zero_copy_only=False),
            columns[0].is_valid().to_numpy(zero_copy_only=False),
        )

    def passes(columns: Sequence[pa.Array], rows: int, tick: Tick) -> pa.Array:
        numbers = columns[0].fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(numbers > tick.micros - 4, mask=columns[0].is_null().to_numpy(zero_copy_only=False))

    operator = TemporalFilter(TYPES, key=key, bound=lambda tick: tick.micros - 4, passes=passes)
    return Rig([(operator, (0,))])


def _single() -> Rig:
    count = Aggregate(TYPES, (), (Call("Count", (), "bigint"),))
    return Rig([(_Chain(count, Single((pa.int64(),))), (0,))])


class _Chain(Operator):
    """An operator behind another one."""

    def __init__(self, *operators: Operator) -> None:
        self._operators = operators

    def initial(self, tick: Tick) -> Delta | None:
        for operator in self._operators:
            operator.initial(tick)
        return None

    def states(self) -> Iterator[tuple[str, Composite]]:
        for at, operator in enumerate(self._operators):
            yield str(at), operator

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        delta = inputs[0]
        for operator in self._operators:
            delta = operator.step([delta], tick)
        return delta


def _pivot() -> Rig:
    """The greatest number of each text, as columns."""
    greatest = Aggregate(TYPES, (0, 2), (Call("Max", (1,), "double"),))
    call = Call("PivotFirst", (1, 2), "array<double>", options=(("pivotColumnValues", LISTED),))
    return Rig([(_Chain(greatest, Aggregate((TYPES[0], TYPES[2], TYPES[1]), (0,), (call,))), (0,))])


def _recursion(limit: int | None = None) -> Rig:
    """Rows of the left input, and what the right input makes of them: rows of the same number, which is one more then, up to two."""
    walk, left, right = (plan.Scan(FIELDS, name, tuple(range(5))) for name in ("walk", "left", "right"))
    joined = plan.Join((*FIELDS, *FIELDS), walk, right, "inner", (0,), (0,), (False,))
    number, two = Column(0, "bigint"), Literal(2, "bigint")
    few = plan.Filter(joined.fields, joined, Expression("LessThan", (number, two), "boolean", True))
    more = Expression("Add", (number, Literal(1, "bigint")), "bigint", True, OPTIONS)
    step = plan.Project(
        FIELDS, few, (more, *(Column(at, field.type) for at, field in enumerate(FIELDS[1:], 6)))
    )
    fields = FIELDS if limit is None else (*FIELDS, Field("level", "int"))
    circuit = Circuit()
    feeds = {name: circuit.add(Feed(), (), TYPES) for name in ("left", "right")}
    compiler = ViewCompiler(circuit, feeds, Shared(), _no_fragment, added=list(feeds.values()))
    compiler.compile(plan.Recursive(fields, "walk", left, step, limit=limit))
    _, _, arrange, recursive = (vertex.operator for vertex in circuit.vertices.values())
    return Rig([(arrange, (1,)), (recursive, (0, 1))])


def _no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def _output() -> Rig:
    return Rig([(Output("v", NAMES, Arrangement(TYPES, None)), (0,))])


RIGS: dict[str, Callable[[], Rig]] = {
    "aggregate by two keys": lambda: aggregate_rig(0, 2),
    "aggregate by a double": lambda: aggregate_rig(1),
    "groups that close": _closing,
    "what is forgotten": _forgetting,
    "aggregate of all": aggregate_rig,
    "aggregate of counted values": lambda: aggregate_rig(2, calls=COUNTED),
    "pivot": _pivot,
    "recursion": _recursion,
    "recursion with a limit": lambda: _recursion(5),
    "top 2": _topk,
    "top 2 per text, with ranks": lambda: _topk(2, rank=True),
    "all rows in order": lambda: _topk(0, limit=None, rank=True),
    "window": _window,
    "inner join": _joined(lambda left, right: Join("inner", left, right)),
    "full join": _joined(lambda left, right: Join("full", left, right, null_safe=(True,))),
    "join of some columns": _selected_join,
    "semi join": _joined(lambda left, right: SemiJoin("semi", left, right)),
    "not in": _joined(NotIn),
    "asof join": _asof,
    "session window": _session,
    "session window by text": lambda: _session(2),
    "source": lambda: Rig([(Source("s", NAMES, TYPES), (0,))]),
    "source by key": lambda: Rig(
        [(Source("s", NAMES, TYPES, primary_key=(0,), on_missing="quarantine"), (0,))], with_key=True
    ),
    "source of some columns": lambda: Rig([(Source("s", NAMES, TYPES, retained=(0, 2)), (0,))]),
    "view": _output,
    "timed": _timed,
    "temporal filter": _temporal,
    "scalar subquery": _single,
}


def bits(delta: Delta) -> tuple[Any, ...]:
    """A delta to the bit, in the order of its rows."""
    return tuple(_array_bits(column) for column in delta.columns), delta.weights.tolist()


def _array_bits(array: Any) -> Any:
    if isinstance(array, pa.Array):
        return str(array.type), [repr(value) for value in array.to_pylist()]
    values = np.asarray(array)
    return str(values.dtype), values.shape, values.tobytes()


def image_bits(image: Image) -> Any:
    """An image as something that can be compared."""
    return (
        json.dumps(image.values, sort_keys=True),
        {name: _array_bits(array) for name, array in image.arrays.items()},
        {name: image_bits(part) for name, part in image.parts.items()},
    )


def through_bytes(image: Image) -> Image:
    """An image that went to a checkpoint's file and came back."""
    writer = ImageWriter("data", "rig", {})
    described = writer.describe("", image)
    with TemporaryDirectory() as folder:
        LocalFiles().write(Path(folder, "data"), writer.content())
        reader = ImageReader(Path(folder), LocalFiles())
        return reader.image(json.loads(json.dumps(described)))
