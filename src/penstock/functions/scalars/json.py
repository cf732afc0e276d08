"""JSON: from_json, to_json, get_json_object and the smaller functions over JSON text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.data.types import Parsed, decimal_parts, kernel_type, parse
from penstock.functions.json import convert, path, structs
from penstock.functions.json.reader import Leniency
from penstock.functions.scalars import datetime_format, datetime_parse, zones
from penstock.functions.scalars.base import (
    AnsiError,
    BeyondKernel,
    ByRow,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    only,
    rows_of,
)
from penstock.functions.scalars.datetime_pattern import PatternError, PatternPart, parts_of
from penstock.functions.scalars.datetime_resolve import Unparsable
from penstock.plan.expression import Call, Literal

_LENIENT = {
    "allowcomments": "comments",
    "allowunquotedfieldnames": "unquoted_names",
    "allowsinglequotes": "single_quotes",
    "allownumericleadingzeros": "leading_zeros",
    "allownonnumericnumbers": "not_a_number",
    "allowbackslashescapinganycharacter": "any_escape",
    "allowunquotedcontrolchars": "control_characters",
}
# What says something to readers of files, or to the inference of a schema.
_WITHOUT_EFFECT = frozenset(
    {
        "multiline",
        "samplingratio",
        "primitivesasstring",
        "prefersdecimal",
        "dropfieldifallnull",
        "compression",
        "infertimestamp",
    }
)
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_BLANK = "".join(map(chr, (*range(0x21), 0x7F)))
_INTEGER = re.compile(r"[+-]?\d+")
_FIRST_GREGORIAN = -141_427  # 1582-10-15
_DAY = 86_400_000_000  # microseconds


def _options(call: Call) -> dict[str, str]:
    """The options of the function, by their names in lower case."""
    flat = call.option("options", ())
    return {name.lower(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


_MOMENTS, _DATES = "timestampformat", "dateformat"
_DATE_LETTERS = frozenset("GyMLdDQq")


def _format(call: Call, name: str, *, parsing: bool) -> tuple[PatternPart, ...] | str | None:
    """The parts of a format among the options, why it is left to Spark, or None when there is none."""
    pattern = _options(call).get(name)
    if pattern is None:
        return None
    policy = _setting(call, "timeParserPolicy")
    if policy not in ("", "CORRECTED"):
        return f"spark.sql.legacy.timeParserPolicy = {policy}"
    try:
        parts = parts_of(pattern, parsing=parsing)
    except PatternError as error:
        return f"a datetime pattern that Spark refuses: {error}"
    letters = set(re.findall("[A-Za-z]", re.sub("'[^']*'", "", pattern)))
    if "V" in letters or (name == _DATES and not letters <= _DATE_LETTERS):
        return f"the option {name} = {pattern}"
    zone = call.option("timeZoneId")
    beyond = datetime_parse.beyond(parts) if parsing else datetime_format.beyond(parts, zone)
    return zones.reason(zone) or beyond or parts


def _format_reason(call: Call, *, parsing: bool) -> str | None:
    formats = (_format(call, name, parsing=parsing) for name in (_MOMENTS, _DATES))
    return next((why for why in formats if isinstance(why, str)), None)


def _has_format(call: Call) -> bool:
    return not {_MOMENTS, _DATES}.isdisjoint(_options(call))


def _reader(parts: tuple[PatternPart, ...], zone: str | None, unit: int) -> Callable[[str], int | None]:
    """What reads moments of a zone, or days of local time, by a pattern; None for what does not fit."""
    parser = datetime_parse.parser_of(parts)

    def read(text: str) -> int | None:
        try:
            return parser.instant(text, zone) // unit
        except Unparsable:
            return None
        except datetime_parse.Overflow:
            raise BeyondKernel(f"the moment {text!r} is far away") from None

    return read


def _setting(call: Call, name: str) -> str:
    return str(call.option(name, ""))


# ------------------------------------------------------------------ from_json


def _schema_reason(kind: str, *, moments: bool) -> str | None:
    """Why from_json does not make values of a type; of moments only by a format."""
    parsed = parse(kind)
    if kind == "timestamp" and moments:
        return None
    if parsed.kind == "struct":
        if len(set(parsed.names)) < len(parsed.names):
            return "two fields of one name"
        return next(
            (why for inner in parsed.inner if (why := _schema_reason(inner, moments=moments)) is not None),
            None,
        )
    if parsed.kind in ("array", "map"):
        return _schema_reason(parsed.inner[-1], moments=moments)
    return None if kind in convert.SIMPLE or decimal_parts(kind) is not None else kind


def _from_json_check(call: Call) -> str | None:
    options = _options(call)
    for name, value in options.items():
        if name in _LENIENT:
            if value.lower() not in ("true", "false"):
                return f"from_json with the option {name} = {value}"
        elif name not in ("mode", "columnnameofcorruptrecord", _MOMENTS, _DATES, *_WITHOUT_EFFECT):
            return f"from_json with the option {name}"
    if options.get("mode", "permissive").lower() not in ("permissive", "failfast"):
        return "from_json in a mode that Spark refuses"
    if _setting(call, "enabled") == "true" or _setting(call, "enableDateTimeParsingFallback"):
        return "from_json with settings of older versions"
    if _setting(call, "timeParserPolicy") == "LEGACY":
        return "from_json with the time parser of older versions"
    if _has_format(call) and options.get("mode", "").lower() == "failfast":
        return "from_json with a format in the mode FAILFAST"
    why = _format_reason(call, parsing=True) or _schema_reason(call.type, moments=_MOMENTS in options)
    if why is not None:
        return f"from_json with {why}"
    parsed = parse(call.type)
    corrupt = _corrupt(call)
    if dict(zip(parsed.names, parsed.inner, strict=False)).get(corrupt, "string") != "string":
        return "from_json with a column for bad records that is no text"
    return ByRow("a moment that is far away") if _has_format(call) else None


def _corrupt(call: Call) -> str:
    return _options(call).get("columnnameofcorruptrecord", _setting(call, "columnNameOfCorruptRecord"))


def _civil(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    days = zones.days_from_civil(year, int(match[3] or 1), int(match[4] or 1))
    return days if days is not None and -(2**31) <= days < 2**31 else None


def _date(text: str) -> int | None:
    """Days of a text as Spark reads dates in JSON: as CAST does, or else a number of days."""
    days = _civil(text)
    if days is None and "GMT" in text:
        days = _civil(text.replace("GMT", "", 1))
    if days is not None or _INTEGER.fullmatch(text) is None:
        return days
    number = int(text)
    if not -(2**31) <= number < 2**31:
        return None
    return number if number >= _FIRST_GREGORIAN else _from_julian(number)


def _from_julian(days: int) -> int | None:
    """The day of the Gregorian calendar that has the date of a day of the Julian one."""
    shifted = days + 719_470  # since 0000-03-01 in the Julian calendar
    era, of_era = divmod(shifted, 1461)
    year = min((4 * of_era + 3) // 1461, 3)
    of_year = of_era - 365 * year
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return zones.days_from_civil(4 * era + year + (month <= 2), month, day)


def _rules(call: Call) -> convert.JsonRules:
    options = _options(call)
    leniency = Leniency(
        **{field: options[name].lower() == "true" for name, field in _LENIENT.items() if name in options}
    )
    partial = _setting(call, "enablePartialResults") != "false"
    days, moments = (_format(call, name, parsing=True) for name in (_DATES, _MOMENTS))
    return convert.JsonRules(
        leniency,
        partial,
        int(call.option("java")),
        _reader(days, None, _DAY) if isinstance(days, tuple) else _date,
        _reader(moments, call.option("timeZoneId") or "UTC", 1) if isinstance(moments, tuple) else None,
    )


def _without(parsed: Parsed, name: str) -> str:
    fields = [
        f"{field}:{inner}" for field, inner in zip(parsed.names, parsed.inner, strict=True) if field != name
    ]
    return f"struct<{','.join(fields)}>"


def _from_json(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = kernel_type(call.type)
    parsed = parse(call.type)
    corrupt = _corrupt(call)
    has_corrupt = corrupt in parsed.names
    converted = convert.converter(_without(parsed, corrupt) if has_corrupt else call.type, _rules(call))
    strict = _options(call).get("mode", "").lower() == "failfast"

    def twin(text: str) -> Any:
        record = converted(text)
        if record.bad is not None and strict:
            raise AnsiError("a text that is no JSON of the schema", record.bad)
        if has_corrupt and record.value is not None:
            return {**record.value, corrupt: None if record.bad is None else text}
        return record.value

    (argument,) = args
    return lambda columns, length, tick: rows_of(call, twin, [argument(columns, length, tick)], length, kind)


# ------------------------------------------------------------------ to_json


def _to_json_check(call: Call) -> str | None:
    for name, value in _options(call).items():
        if name in (_MOMENTS, _DATES):
            continue
        if name != "ignorenullfields" or value.lower() not in ("true", "false"):
            return f"to_json with the option {name}"
    why = _format_reason(call, parsing=False) or structs.reason(call.args[0].type, call.option("timeZoneId"))
    if why is not None:
        return f"to_json with {why}"
    return ByRow("a day that is far away") if _DATES in _options(call) else None


def _to_json(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = call.args[0].type
    skip = _options(call).get("ignorenullfields", _setting(call, "ignoreNullFields")).lower() != "false"
    days, moments = (_format(call, name, parsing=False) for name in (_DATES, _MOMENTS))
    style = structs.JsonStyle(
        skip,
        int(call.option("java")),
        call.option("timeZoneId"),
        days if isinstance(days, tuple) else None,
        moments if isinstance(moments, tuple) else None,
    )
    write = structs.writer(kind, style)
    (argument,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = argument(columns, length, tick)
        rows = structs.plain(array(value, 1 if isinstance(value, pa.Scalar) else length)).to_pylist()
        texts = pa.array([None if row is None else write(row) for row in rows], pa.large_string())
        return texts[0] if isinstance(value, pa.Scalar) else texts

    return run


# ------------------------------------------------------------------ paths


def _get_json_object(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    java = int(call.option("java"))
    kind = pa.large_string()
    text_of, path_of = args
    wanted = call.args[1]
    if isinstance(wanted, Literal):
        steps = None if wanted.value is None else path.parse(wanted.value)
        if steps is None:
            return lambda columns, length, tick: pa.scalar(None, kind)
        fixed = steps
        return lambda columns, length, tick: rows_of(
            call, lambda text: path.find(text, fixed, java), [text_of(columns, length, tick)], length, kind
        )

    def twin(text: str, pattern: str) -> str | None:
        try:
            steps = path.parse(pattern)
        except OverflowError as error:
            raise AnsiError(f"the index {error} is too large", "SQL_SPARK") from None
        return None if steps is None else path.find(text, steps, java)

    return lambda columns, length, tick: rows_of(
        call, twin, [text_of(columns, length, tick), path_of(columns, length, tick)], length, kind
    )


def _path_check(call: Call) -> str | None:
    wanted = call.args[1]
    if isinstance(wanted, Literal) and wanted.value is not None:
        try:
            path.parse(wanted.value)
        except OverflowError:
            return "a path with an index beyond 64 bits"
    return None


def _over_text(twin: Callable[[str], Any]) -> Any:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        (argument,) = args
        return lambda columns, length, tick: rows_of(
            call, twin, [argument(columns, length, tick)], length, kind
        )

    return build


FUNCTIONS: dict[str, Scalar] = {
    "JsonToStructs": Scalar(_from_json, _from_json_check),
    "StructsToJsonEvaluator.evaluate": Scalar(_to_json, _to_json_check),
    "GetJsonObject": Scalar(_get_json_object, _path_check),
    "JsonExpressionUtils.lengthOfJsonArray": Scalar(_over_text(path.array_length), only("string")),
    "JsonExpressionUtils.jsonObjectKeys": Scalar(_over_text(path.object_keys), only("string")),
}
