"""Functions that write or read moments by a datetime pattern, which is constant or comes with each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars import datetime_format, datetime_layout, datetime_parse, time_text, zones
from penstock.functions.scalars.base import (
    OVERFLOW,
    AnsiError,
    BeyondKernel,
    ByRow,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    bad_row_error,
    from_numbers,
    numbers,
    valid_mask,
)
from penstock.functions.scalars.datetime_pattern import PatternError, PatternPart, parts_of
from penstock.functions.scalars.datetime_resolve import Unparsable
from penstock.plan.expression import Call, Literal

Numbers = npt.NDArray[np.int64]
UNPARSABLE = "DATA_CANNOT_PARSE_TIMESTAMP"


def _zone(call: Call) -> str:
    return call.option("timeZoneId") or "UTC"


def _constant_parts(call: Call, *, parsing: bool) -> tuple[PatternPart, ...] | str | None:
    """The parts of a constant pattern or why it is left to Spark; None for a pattern that comes with each row."""
    pattern = call.args[1]
    if not isinstance(pattern, Literal):
        return None
    try:
        parts = parts_of(pattern.value or "", parsing=parsing)
    except PatternError as error:
        return f"a datetime pattern that Spark refuses: {error}"
    beyond = datetime_parse.beyond(parts) if parsing else datetime_format.beyond(parts, _zone(call))
    return beyond or parts


def _check(call: Call, *, parsing: bool) -> str | None:
    policy = call.option("timeParserPolicy")
    if policy is not None:
        return f"spark.sql.legacy.timeParserPolicy = {policy}"
    why = zones.reason(_zone(call))
    if why is not None:
        return why
    if not parsing or call.args[0].type == "string":
        parts = _constant_parts(call, parsing=parsing)
        if parts is None:
            return ByRow("a datetime pattern that has the name of a zone")
        return parts if isinstance(parts, str) else None
    return None


def _patterns(pattern: pa.Array, rows: npt.NDArray[np.bool_]) -> Iterator[tuple[str, Numbers]]:
    """Each pattern of the rows that are asked for, and its rows."""
    encoded = pattern.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        chosen = np.flatnonzero((codes == code) & rows)
        if len(chosen):
            yield text, chosen


def _row_parts(
    call: Call, pattern: str, *, parsing: bool, beyond: Callable[[Sequence[PatternPart]], str | None]
) -> tuple[PatternPart, ...]:
    try:
        parts = parts_of(pattern, parsing=parsing)
    except PatternError as error:
        raise AnsiError(
            f"{pattern!r} is not a datetime pattern: {error}", error.code, error.condition
        ) from None
    why = beyond(parts)
    if why is not None:
        raise BeyondKernel(f"{pattern!r} asks for {why}")
    return parts


# ------------------------------------------------------------------ writing


def _format(factor: int) -> Callable[[Call, tuple[Compiled, ...]], Compiled]:
    """date_format, and from_unixtime, whose numbers are seconds."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        zone, java = _zone(call), int(call.option("java", 17))
        constant_parts = _constant_parts(call, parsing=False)
        moment_of, pattern_of = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            moment = moment_of(columns, length, tick)
            single = isinstance(moment, pa.Scalar) and constant_parts is not None
            count = 1 if single else length
            column = pc.cast(array(moment, count), pa.int64())
            valid = valid_mask(column, count)
            with np.errstate(over="ignore"):
                micros = numbers(column, count) * factor
            if isinstance(constant_parts, tuple):
                text = _masked(datetime_format.written(constant_parts, micros, zone, java), valid)
            else:
                pattern = array(pattern_of(columns, length, tick), length)
                text = _written_by_row(call, micros, valid, pattern, zone, java)
            return text[0] if single else text

        return run

    return build


def _written_by_row(
    call: Call, micros: Numbers, valid: npt.NDArray[np.bool_], pattern: pa.Array, zone: str, java: int
) -> pa.Array:
    pieces, places = [], []
    for text, rows in _patterns(pattern, valid):
        try:
            parts = _row_parts(
                call, text, parsing=False, beyond=lambda parts: datetime_format.beyond(parts, zone)
            )
        except AnsiError as error:
            raise bad_row_error(call, [pattern], int(rows[0]), error) from None
        pieces.append(datetime_format.written(parts, micros[rows], zone, java))
        places.append(rows)
    if not pieces:
        return pa.nulls(len(pattern), pa.large_string())
    order = np.full(len(pattern), -1, np.int64)
    order[np.concatenate(places)] = np.arange(sum(map(len, places)))
    return pa.concat_arrays(pieces).take(pa.array(order, mask=order < 0))


def _masked(text: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    return text if valid.all() else pc.if_else(pa.array(valid), text, pa.scalar(None, pa.large_string()))


# ------------------------------------------------------------------ reading


@lru_cache(maxsize=1024)
def _parser(parts: tuple[PatternPart, ...]) -> datetime_parse.Parser:
    return datetime_parse.parser_of(parts)


def _parse(divisor: int) -> Callable[[Call, tuple[Compiled, ...]], Compiled]:
    """to_timestamp, and unix_timestamp, whose results are seconds."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        moment_of, pattern_of = args
        if call.args[0].type != "string":
            return _moment(call, moment_of, divisor)
        zone = None if call.type == "timestamp_ntz" else _zone(call)
        constant_parts = _constant_parts(call, parsing=True)
        kind = kernel_type(call.type)

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            moment = moment_of(columns, length, tick)
            single = isinstance(moment, pa.Scalar) and constant_parts is not None
            text = array(moment, 1 if single else length)
            micros, valid = np.zeros(len(text), np.int64), valid_mask(text, len(text)).copy()
            if isinstance(constant_parts, tuple):
                _read(call, _parser(constant_parts), text, np.flatnonzero(valid), zone, micros, valid)
            else:
                pattern = array(pattern_of(columns, length, tick), length)
                valid &= valid_mask(pattern, length)
                for row_pattern, rows in _patterns(pattern, valid):
                    try:
                        parts = _row_parts(call, row_pattern, parsing=True, beyond=datetime_parse.beyond)
                    except AnsiError as error:
                        raise bad_row_error(call, [text, pattern], int(rows[0]), error) from None
                    _read(call, _parser(parts), text, rows, zone, micros, valid)
            column = pc.cast(from_numbers(_quotient(micros, divisor), valid, pa.int64()), kind)
            return column[0] if single else column

        return run

    return build


def _read(
    call: Call,
    parser: datetime_parse.Parser,
    text: pa.Array,
    rows: Numbers,
    zone: str | None,
    micros: Numbers,
    valid: npt.NDArray[np.bool_],
) -> None:
    """Write the moments of some rows into `micros`; rows that do not fit become invalid, or an error in ANSI mode."""
    part = text if len(rows) == len(text) else text.take(pa.array(rows))
    plain = np.zeros(len(rows), bool)
    if parser.layout is not None:
        local, offset, plain = datetime_layout.read(parser.layout, part)
        micros[rows] = local if zone is None else time_text.instants(local, offset, zone)
    fails = bool(call.option("failOnError", True))
    rest = np.flatnonzero(~plain)
    for row, item in zip(rows[rest].tolist(), part.take(pa.array(rest)).to_pylist(), strict=True):
        try:
            micros[row] = parser.instant(item, zone)
        except Unparsable:
            if fails:
                error = AnsiError(f"the text {item!r} does not fit its pattern", UNPARSABLE)
                raise bad_row_error(call, [text], row, error) from None
            valid[row] = False
        except datetime_parse.Overflow:
            error = AnsiError(f"the moment {item!r} is out of range", OVERFLOW)
            raise bad_row_error(call, [text], row, error) from None


def _quotient(micros: Numbers, divisor: int) -> Numbers:
    """As Java divides: towards zero."""
    return micros if divisor == 1 else np.where(micros < 0, -(-micros // divisor), micros // divisor)


def _moment(call: Call, moment_of: Compiled, divisor: int) -> Compiled:
    """A date or timestamp, for which the pattern does not count."""
    zone, kind = _zone(call), kernel_type(call.type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        moment = moment_of(columns, length, tick)
        single = isinstance(moment, pa.Scalar)
        column: Any = array(moment, 1 if single else length)
        if pa.types.is_date(column.type):
            column = zones.start_of_day(column, zone)
        column = pc.cast(column, pa.int64())
        micros = _quotient(numbers(column, len(column)), divisor)
        result = pc.cast(from_numbers(micros, valid_mask(column, len(column)), pa.int64()), kind)
        return result[0] if single else result

    return run


def _writing(call: Call) -> str | None:
    return _check(call, parsing=False)


def _reading(call: Call) -> str | None:
    return _check(call, parsing=True)


FUNCTIONS: dict[str, Scalar] = {
    "DateFormatClass": Scalar(_format(1), _writing),
    "FromUnixTime": Scalar(_format(1_000_000), _writing),
    "GetTimestamp": Scalar(_parse(1), _reading),
    "UnixTimestamp": Scalar(_parse(1_000_000), _reading),
    "ToUnixTimestamp": Scalar(_parse(1_000_000), _reading),
}
