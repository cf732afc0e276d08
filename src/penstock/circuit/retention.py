"""Sources that keep only the columns that views use: which those are, and how an empty source begins to keep more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.circuit.circuit import Circuit
from penstock.circuit.compile import types_of
from penstock.circuit.kernel import KernelSource
from penstock.circuit.state_key import Meaning
from penstock.data.collation import normaliser
from penstock.errors import StateError
from penstock.operators.source import Source
from penstock.plan import node as plan


class SourceVertex:
    """A source in the circuit; its operator is another one after it was widened."""

    __slots__ = ("_circuit", "operator", "source", "vertex_id")

    def __init__(self, circuit: Circuit, source: KernelSource) -> None:
        self.source = source
        self._circuit = circuit
        self.operator = _operator(source, first_columns(source) if source.retain == "used" else None)
        self.vertex_id = circuit.add(self.operator, (), self._types(), contents=self.operator.contents())
        circuit.vertices[self.vertex_id].meaning = self._meaning()

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it keeps."""
        return self.operator.columns

    def widen(self, columns: tuple[int, ...]) -> Callable[[], None]:
        """Keep more columns, of a source without rows; returns how to take it back.

        Columns are only ever appended, so that what reads the earlier ones by position goes on.
        """
        before = self.operator
        self._put(_operator(self.source, (*self.columns, *columns)))
        return lambda: self._put(before)

    def _put(self, operator: Source) -> None:
        self.operator = operator
        self._circuit.replace(self.vertex_id, operator, self._types(), contents=operator.contents())
        self._circuit.vertices[self.vertex_id].meaning = self._meaning()

    def _meaning(self) -> Meaning:
        """The rows with the columns that it keeps; `FlowState` has those of a restored flow, so that it finds them."""
        fields = tuple(self.source.fields[column] for column in self.columns)
        return Meaning(plan.Scan(fields, self.source.name, self.columns))

    def _types(self) -> list[pa.DataType]:
        types = types_of(self.source.fields)
        return [types[column] for column in self.operator.columns]


@contextmanager
def widened(sources: Mapping[str, SourceVertex], view: plan.View) -> Iterator[None]:
    """Let sources keep what a view reads too; when the body fails, they keep what they kept before.

    Only an empty source can begin to keep a column: raises StateError when rows are there without it.
    """
    undo: list[Callable[[], None]] = []
    try:
        for name, columns in _used(view.root).items():
            entry = sources.get(name)
            missing = () if entry is None else _missing(entry.source, entry.columns, columns)
            if entry is not None and missing:
                _refuse_rows(entry, view.name, missing)
                undo.append(entry.widen(missing))
        yield
    except BaseException:
        for take_back in reversed(undo):
            take_back()
        raise


def first_columns(source: KernelSource) -> tuple[int, ...]:
    """The columns that a source keeps before views use any."""
    if source.retain == "all":
        return tuple(range(len(source.fields)))
    times = (source.event_time,) if source.frees and source.event_time is not None else ()
    return tuple(dict.fromkeys((*source.primary_key, *times, *source.retained)))


def retained_with(source: KernelSource, view: plan.View) -> KernelSource:
    """The source as it is behind the registration of a view: what it keeps from its beginning is what it keeps then."""
    columns = first_columns(source)
    missing = _missing(source, columns, _used(view.root).get(source.name, set()))
    return replace(source, retained=(*columns, *missing)) if missing else source


def _missing(source: KernelSource, columns: tuple[int, ...], used: set[int]) -> tuple[int, ...]:
    """The columns that a view uses and the source does not keep yet, in the order in which it begins to."""
    return () if source.retain == "all" else tuple(sorted(used.difference(columns)))


def _operator(source: KernelSource, retained: tuple[int, ...] | None) -> Source:
    """The operator of a source; `retained` None keeps whole rows."""
    return Source(
        source.name,
        [field.name for field in source.fields],
        types_of(source.fields),
        primary_key=source.primary_key or None,
        on_missing=source.on_missing,
        retained=retained,
        event_time=source.event_time if source.frees else None,
        normalise={
            column: of_text
            for column in source.primary_key
            if (of_text := normaliser(source.fields[column].type)) is not None
        },
    )


def _used(root: plan.Node) -> dict[str, set[int]]:
    """The columns that a plan reads, by relation."""
    columns: dict[str, set[int]] = {}

    def visit(node: plan.Node) -> None:
        if isinstance(node, plan.Scan):
            columns.setdefault(node.name, set()).update(node.columns)
        for child in plan.children(node):
            visit(child)

    visit(root)
    return columns


def _refuse_rows(entry: SourceVertex, view: str, missing: tuple[int, ...]) -> None:
    rows = entry.operator.arrangement.count
    if rows == 0:
        return
    names = [entry.source.fields[column].name for column in missing]
    raise StateError(
        f"view '{view}' needs {listed(names)} of source '{entry.source.name}', whose {rows:,} rows were kept without",
        code="FLOW_NOT_RETAINED",
        where=f"view '{view}'",
        hint="register the view before feeding rows, or register the source with retain='all'",
    )


def listed(names: list[str]) -> str:
    """`column a`, `columns a, b`."""
    if not names:
        return "no column"
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"
