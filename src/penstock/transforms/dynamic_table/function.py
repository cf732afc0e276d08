"""`dynamic_table_check(name, value)` in a session of Spark: a function over sets that the executors have, so it may
be anywhere in a query.

The value is compared by what it is, whatever its exact type: the number 1 is 1.00. NULL is in no table, and the
answer is never NULL. A value of another kind than the table holds, such as text for a table of numbers, is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino
from penstock.transforms.dynamic_table.members import UNKNOWN, Members, MembersPart

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NAME = "dynamic_table_check"


class MembershipFunction:
    """The function of one pipeline; parts that were sent to the executors once are not sent again."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[MembersPart, Any]] = {}

    def plan(self, spark: SparkSession, names: Iterable[str]) -> None:
        """Register the function with empty tables, so that Spark can plan queries that call it."""
        self.register(spark, {name: Members(UNKNOWN) for name in names})

    def register(self, spark: SparkSession, tables: Mapping[str, Members]) -> None:
        """Register the function for queries that are planned from now on in a session, with the tables as they are now.

        Called for each epoch, with the session of its frames, after the tables were brought up to date.
        """
        java = janino.instance_for_tasks(spark, __package__, "Membership")
        gateway: Any = spark.sparkContext._gateway
        jvm: Any = spark._jvm
        used: dict[int, tuple[MembersPart, Any]] = {}
        for name, members in tables.items():
            parts = gateway.new_array(jvm.java.lang.Object, len(members.parts))
            for at, part in enumerate(reversed(members.parts)):
                sent = self._sent.get(id(part)) or (part, self._send(spark, java, members, part))
                used[id(part)] = sent
                parts[at] = sent[1]
            java.put(name, members.kind, parts)
        # Parts that no table has any more are dropped: Spark removes a broadcast without references.
        self._sent = used
        types: Any = jvm.org.apache.spark.sql.types.DataTypes
        spark._jsparkSession.udf().register(NAME, java, types.BooleanType)

    def _send(self, spark: SparkSession, java: Any, members: Members, part: MembersPart) -> Any:
        values = java.part(
            java.values(*_encoded(members.kind, part.added)),
            java.values(*_encoded(members.kind, part.removed)),
        )
        return spark.sparkContext._jsc.broadcast(values)


def _encoded(kind: str, values: pa.Array) -> tuple[bytes, bytes, bytes]:
    """Values as Membership.java reads them: numbers of 64 bits; ends of texts, and the texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "text":
        return b"", *_texts(values)
    if kind == "binary":
        return b"", *_texts(pa.array([value.hex() for value in values.to_pylist()], pa.string()))
    if pa.types.is_decimal(values.type):
        return _decimals(values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return _numbers(pc.cast(values, pa.int64())), b"", b""


def _decimals(values: pa.Array) -> tuple[bytes, bytes, bytes]:
    """Whole numbers of 64 bits as such, others as their shortest text."""
    import pyarrow as pa

    numbers, others = [], []
    for value in values.to_pylist():
        if value == value.to_integral_value() and -(1 << 63) <= value < 1 << 63:
            numbers.append(int(value))
        else:
            text = f"{value:f}"
            others.append(text.rstrip("0").rstrip(".") if "." in text else text)
    return _numbers(pa.array(numbers, pa.int64())), *_texts(pa.array(others, pa.string()))


def _numbers(values: pa.Array) -> bytes:
    return bytes(values.to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def _texts(values: pa.Array) -> tuple[bytes, bytes]:
    import pyarrow as pa

    # A slice begins somewhere in the buffers of another array: a copy begins at their start.
    own = pa.concat_arrays([values.cast(pa.string()), pa.array([], pa.string())])
    if not len(own):
        return b"", b""
    _, offsets, text = own.buffers()
    ends = memoryview(offsets)[own.offset * 4 : (own.offset + len(own) + 1) * 4]
    return bytes(ends), b"" if text is None else bytes(memoryview(text))
