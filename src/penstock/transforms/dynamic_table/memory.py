"""Dynamic tables in memory, which last in the state of the pipeline: the whole set, and behind it what epochs have changed.

A step is stored before the manifest that names it, and steps that the manifest does not name any more go after it: a
process that is killed in between leaves the set as it was, and the epoch comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import StateError
from penstock.transforms.dynamic_table.members import Members, MembersPart, spark_type
from penstock.transforms.dynamic_table.table import DynamicTable, changes, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.plugin import KeyValues
    from penstock.transforms.base import TransformContext

MANIFEST, EDITS = "members", "edits"
_MOST_TRIES = 100


class MemoryTable(DynamicTable):
    """A set that belongs to the pipeline."""

    def __init__(self, name: str, *, value_type: str = "string") -> None:
        super().__init__(name)
        self._type = spark_type(value_type)
        self._column: str | None = None
        self._state: KeyValues | None = None
        self._numbers: dict[MembersPart, int] = {}
        self._next = 0
        self._edited = 0

    def check(self, context: TransformContext, columns: StructType | None) -> None:
        kind = self._type if columns is None else self.type_of(columns)
        if context.state is not None:
            self._same_type(context.state.get(MANIFEST), kind)

    def open(self, context: TransformContext, columns: StructType | None) -> None:
        if columns is not None:
            self._type, self._column = self.type_of(columns), self.value_column(columns)
        self._state = context.state
        manifest = None if self._state is None else self._state.get(MANIFEST)
        self._same_type(manifest, self._type)
        members = Members(self._type)
        self._numbers, self._next, self._edited = {}, 0, 0
        if manifest is not None:
            assert self._state is not None
            parts = {_decoded(self._state.get(_key(number)), members): number for number in manifest["parts"]}
            members = Members(self._type, tuple(parts))
            self._numbers, self._next, self._edited = parts, manifest["next"], manifest["edited"]
        self._members = members
        if manifest is None:
            self._store(members)  # so that editors know the type before the first epoch

    def update(self, epoch: int, rows: DataFrame | None) -> None:
        following = self._with_edits(self.members)
        if rows is not None:
            assert self._column is not None, "the table has no query"
            following = following.apply(*changes(rows, self._column, following))
        if following is not self._members:
            self._store(following)
        self._members = following

    def _with_edits(self, members: Members) -> Members:
        edits = None if self._state is None else self._state.get(EDITS)
        if edits is None or edits["next"] == self._edited:
            return members
        for number, operation, texts in edits["list"]:
            if number >= self._edited:
                values, none = parsed(texts, members.type, table=self.name), members.array([])
                members = members.apply(values, none) if operation == "add" else members.apply(none, values)
        self._edited = edits["next"]
        if members is self._members:
            self._store(members)  # so that the edits are known as taken
        return members

    def _store(self, members: Members) -> None:
        if self._state is None:
            return
        numbers: dict[MembersPart, int] = {}
        for part in members.parts:
            if part not in self._numbers:
                self._state.put(_key(self._next), _encoded(part))
                numbers[part], self._next = self._next, self._next + 1
            else:
                numbers[part] = self._numbers[part]
        manifest = {
            "type": members.type,
            "parts": list(numbers.values()),
            "next": self._next,
            "edited": self._edited,
        }
        self._state.put(MANIFEST, manifest)
        for part, number in self._numbers.items():
            if part not in numbers:
                self._state.remove(_key(number))
        self._numbers = numbers

    def _same_type(self, manifest: Any, kind: str) -> None:
        if manifest is not None and manifest["type"] != kind:
            raise StateError(
                f"the dynamic table {self.name} holds values of the type {manifest['type']}, and now they are {kind}",
                code="DYNAMIC_TABLE_CHANGED",
                hint="cast the column to the type that it had, or forget the state of the node",
            )


class SwappableValues(Protocol):
    """Values of a node in the state backend that several processes write."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""

    def swap(self, key: str, old: Any, new: Any) -> bool:
        """Set the value of a key if it is still `old` (None: not there); False, and nothing set, when it is not."""


def edit(values: SwappableValues, table: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    """Add values to a table in memory and remove others, from any process; the pipeline takes them when its next epoch begins.

    The values are texts, which must fit the type of the table.
    """
    manifest = _manifest(values, table)
    for texts in (add, remove):
        parsed(texts, manifest["type"], table=table)
    for _ in range(_MOST_TRIES):
        old = values.get(EDITS)
        taken = values.get(MANIFEST)["edited"]
        edits: dict[str, Any] = old or {"next": 0, "list": []}
        number = edits["next"]
        pending = [entry for entry in edits["list"] if entry[0] >= taken]
        for operation, texts in (("add", add), ("remove", remove)):
            if texts:
                pending.append([number, operation, list(texts)])
                number += 1
        if values.swap(EDITS, old, {"next": number, "list": pending}):
            return
    raise StateError(
        f"the dynamic table {table} is being edited by too many at once",
        code="DYNAMIC_TABLE_BUSY",
        hint="try again",
    )


def waiting(values: SwappableValues, table: str) -> int:
    """How many edits of a table in memory its pipeline has not taken yet."""
    taken = _manifest(values, table)["edited"]
    edits = values.get(EDITS) or {"list": []}
    return sum(entry[0] >= taken for entry in edits["list"])


def contents(values: SwappableValues, table: str) -> list[Any]:
    """The values of a table in memory as its pipeline has stored them last, in order."""
    while True:
        manifest = _manifest(values, table)
        stored = [values.get(_key(number)) for number in manifest["parts"]]
        if values.get(MANIFEST)["parts"] == manifest["parts"]:
            break
        # The pipeline has stored another set meanwhile, and removed parts of this one.
    members = Members(manifest["type"])
    parts = tuple(_decoded(part, members) for part in stored)
    return sorted(Members(manifest["type"], parts).values().to_pylist())


def _manifest(values: SwappableValues, table: str) -> Any:
    manifest = values.get(MANIFEST)
    if manifest is None:
        raise StateError(
            f"there is no dynamic table {table} in this state",
            code="DYNAMIC_TABLE_UNKNOWN",
            hint="it is there as soon as its pipeline has run, when its backend is InMemory",
        )
    return manifest


def _key(number: int) -> str:
    return f"part-{number}"


def _encoded(part: MembersPart) -> bytes:
    import pyarrow as pa

    rows = pa.table(
        {
            "value": pa.concat_arrays([part.added, part.removed]),
            "removed": pa.array([False] * len(part.added) + [True] * len(part.removed), pa.bool_()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _decoded(content: bytes, members: Members) -> MembersPart:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.ipc.open_stream(content).read_all().combine_chunks()
    removed = rows.column("removed")
    return MembersPart(
        members.array(rows.column("value").filter(pc.invert(removed))),
        members.array(rows.column("value").filter(removed)),
    )
