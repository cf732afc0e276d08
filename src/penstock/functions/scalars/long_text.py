"""repeat, space, lpad and rpad: texts whose length a number says, refused before memory is taken when they are too long.

Spark fails for a text of more bytes than a Java array can have; a column of one change holds no more than 2 GiB of text.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.errors import DataError
from penstock.functions.scalars.base import (
    OVERFLOW,
    AnsiError,
    Build,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    only,
    rows_of,
)
from penstock.plan.expression import Call, show

MOST_BYTES = 2**31 - 1


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def repeated_size(text: str, times: int) -> int:
    """How many bytes a text has that is repeated."""
    return _bytes(text) * max(times, 0)


def padded_size(text: str, width: int, fill: str) -> int:
    """How many bytes a text has that is padded to some characters; one that needs no padding does not get longer.

    >>> padded_size("a", 4, "é"), padded_size("abc", 2, "é")
    (7, 3)
    """
    missing = width - len(text)
    if missing <= 0 or not fill:
        return _bytes(text)
    repeats, rest = divmod(missing, len(fill))
    return _bytes(text) + _bytes(fill) * repeats + _bytes(fill[:rest])


def _repeat(text: str, times: int) -> str:
    return text * max(times, 0)


def _pad(left: bool) -> Callable[[str, int, str], str]:
    def twin(text: str, width: int, fill: str) -> str:
        if width <= 0:
            return ""
        missing = width - len(text)
        if missing <= 0 or fill == "":
            return text[:width]
        padding = (fill * (missing // len(fill) + 1))[:missing]
        return padding + text if left else text + padding

    return twin


def _sized(size: Callable[..., int], twin: Callable[..., str]) -> Build:
    """Build a function whose texts are measured before the first one is made."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)

        def measured(*row: object) -> int:
            length = size(*row)
            if length > MOST_BYTES:
                raise AnsiError(f"a text of {length:,} bytes", OVERFLOW)
            return length

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            values = [argument(columns, length, tick) for argument in args]
            sizes = rows_of(call, measured, values, length, pa.int64())
            total = (
                length * (sizes.as_py() or 0) if isinstance(sizes, pa.Scalar) else pc.sum(sizes).as_py() or 0
            )
            if total > MOST_BYTES:
                raise DataError(
                    f"{show(call)} makes {total:,} bytes of text in one change",
                    code="DATA_TOO_LARGE",
                    hint="a column of one change may hold 2 GiB of text; feed smaller changes, or make shorter texts",
                )
            return rows_of(call, twin, values, length, kind)

        return run

    return build


FUNCTIONS: dict[str, Scalar] = {
    "StringLPad": Scalar(_sized(padded_size, _pad(True)), only("string", first=1)),
    "StringRPad": Scalar(_sized(padded_size, _pad(False)), only("string", first=1)),
    "StringRepeat": Scalar(_sized(repeated_size, _repeat), only("string", first=1)),
    "StringSpace": Scalar(
        _sized(lambda count: max(count, 0), lambda count: " " * max(count, 0)), only("int")
    ),
}
