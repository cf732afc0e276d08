"""A set of values as Arrow arrays: what was added and removed, step by step, and the kinds of values that are compared.

A step costs what it changes; when the steps since the last whole set are many, or together a good part of it, they
become one whole again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_PARTS = 8
_SMALL = 10_000
UNKNOWN = "void"
"""The type of a table whose values are not known yet: nothing is in it, and it may be asked for anything."""

_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "number"),
    "string": "text",
    UNKNOWN: "any",
    **{name: name for name in ("boolean", "date", "timestamp", "timestamp_ntz", "binary")},
}


def kind_of(type_name: str) -> str:
    """The kind of values that a column of a type of Spark gives; a DataError for types whose values have no one way
    to be written.

    >>> kind_of("int"), kind_of("decimal(10,2)"), kind_of("string")
    ('number', 'number', 'text')
    """
    if type_name.startswith("decimal"):
        return "number"
    if type_name.startswith(("char", "varchar")) or type_name == "string":
        return "text"
    if type_name in _KINDS:
        return _KINDS[type_name]
    raise DataError(
        f"a dynamic table cannot hold values of the type {type_name}",
        code="DYNAMIC_TABLE_TYPE",
        hint="cast them, floating numbers to a decimal or a text for example",
    )


def spark_type(name: str) -> str:
    """Spark's name of a type that a table can hold, given by the name that Spark or Arrow has for it.

    >>> spark_type("int64")
    'bigint'
    """
    import pyarrow as pa

    from penstock.data.schema import declared_type, to_arrow_type

    kind = declared_type(pa.field("value", to_arrow_type(name)))
    kind_of(kind)
    return kind


@dataclass(frozen=True, eq=False)
class MembersPart:
    """One step: values that it added, and values that it removed."""

    added: pa.Array
    removed: pa.Array

    def __len__(self) -> int:
        return len(self.added) + len(self.removed)


@dataclass(frozen=True, slots=True)
class Members:
    """The set; `apply` gives the next one."""

    type: str
    """Of the values, by Spark's name."""
    parts: tuple[MembersPart, ...] = field(default=())
    """The oldest first, which removes nothing."""

    @property
    def kind(self) -> str:
        """What its values may be compared with."""
        return kind_of(self.type)

    def array(self, values: Any) -> pa.Array:
        """Values in the type of the set, without NULL."""
        import pyarrow as pa

        from penstock.data.schema import to_arrow_type

        kind = to_arrow_type(self.type)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            return flat.cast(kind).drop_null()
        return pa.array(values, kind).drop_null()

    def contains(self, values: pa.Array) -> pa.BooleanArray:
        """Whether values of the type of the set are in it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        result = pa.array([False] * len(values), pa.bool_())
        for part in self.parts if len(values) else ():
            result = pc.or_(result, _is_in(values, part.added))
            if len(part.removed):
                result = pc.and_(result, pc.invert(_is_in(values, part.removed)))
        return result

    def values(self) -> pa.Array:
        """All values of the set, each once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.array([])
        for part in self.parts:
            if len(part.removed):
                values = values.filter(pc.invert(pc.is_in(values, value_set=part.removed)))
            values = pa.concat_arrays([values, part.added])
        return pc.unique(values)

    def apply(self, added: pa.Array, removed: pa.Array) -> Members:
        """The set after some values were removed and others added; itself when that changes nothing."""
        import pyarrow.compute as pc

        gone, new = pc.unique(removed), pc.unique(added)
        gone = gone.filter(self.contains(gone))
        new = new.filter(pc.invert(self.contains(new)))
        if not len(gone) and not len(new):
            return self
        following = replace(self, parts=(*self.parts, MembersPart(new, gone)))
        steps = sum(map(len, following.parts[1:]))
        if len(following.parts) > MOST_PARTS or steps > max(_SMALL, len(following.parts[0]) // 4):
            return following.compacted()
        return following

    def compacted(self) -> Members:
        """The same set as one part."""
        return replace(self, parts=(MembersPart(self.values(), self.array([])),))


def _is_in(values: pa.Array, many: pa.Array) -> pa.BooleanArray:
    """Whether values are among others; hashes the smaller of the two."""
    import pyarrow.compute as pc

    if len(values) < len(many):
        many = many.filter(pc.is_in(many, value_set=values))
    return pc.is_in(values, value_set=many)
