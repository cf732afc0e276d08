"""On which rows Spark evaluates the arguments of a function, by the name of its Catalyst class.

A function that is in no table here is evaluated eagerly, which is never wrong and at worst raises where Spark does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.data.types import decimal_parts
from penstock.plan.expression import Call, Expression, Literal, walk

# NULL when an argument is; the arguments behind the first NULL are not evaluated.
NULL_INTOLERANT = frozenset(
    """
    Add Subtract Multiply UnaryMinus UnaryPositive Abs PromotePrecision
    EqualTo LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual IsNaN Not
    Cast NormalizeNaNAndZero UnscaledValue MakeDecimal CheckOverflow
    Upper Lower Substring Length OctetLength BitLength Concat Like RLike StartsWith EndsWith Contains
    StringTrim StringTrimLeft StringTrimRight StringReplace StringLPad StringRPad StringInstr Reverse
    StringRepeat StringSpace StringSplitSQL StringTranslate SubstringIndex Ascii Hex
    Year Quarter Month DayOfMonth DayOfYear DayOfWeek WeekDay WeekOfYear YearOfWeek Hour Minute Second SecondWithFraction
    DateAdd DateSub DateDiff AddMonths LastDay TruncDate TruncTimestamp MakeDate DateAddYMInterval TimestampAddYMInterval
    PreciseTimestampConversion TimestampAddInterval TimeAdd SubtractDates SubtractTimestamps UnixDate DateFromUnixDate UnixSeconds UnixMillis UnixMicros
    MillisToTimestamp MicrosToTimestamp SecondsToTimestamp DateFormatClass FromUnixTime GetTimestamp UnixTimestamp ToUnixTimestamp
    FromUTCTimestamp ToUTCTimestamp ConvertTimezone TimestampAdd TimestampDiff MonthsBetween NextDay DayName MonthName MakeTimestamp
    Round BRound RoundFloor RoundCeil Floor Ceil Sqrt Rint Signum
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot ShiftLeft ShiftRight ShiftRightUnsigned
    GetStructField GetArrayItem ElementAt GetMapValue ArrayContains MapKeys MapValues MapEntries MapFromArrays MapFromEntries StringToMap
    ArrayPosition ArrayRemove ArrayMin ArrayMax ArrayDistinct ArrayUnion ArrayIntersect ArrayExcept ArraysOverlap Slice Flatten
    SortArray GetArrayStructFields Exp Pow Log Log10 Log2 Logarithm Factorial BitwiseCount BitwiseGet WidthBucket
    ToDegrees ToRadians
    JsonToStructs Md5 Sha1 Sha2 Crc32 Unhex UnBase64 Bin Conv StringSplit RegExpReplace RegExpExtract RegExpExtractAll RegExpInStr
    LikeAll NotLikeAll LikeAny NotLikeAny FindInSet SoundEx Overlay Chr FormatNumber ToNumber TryToNumber ToCharacter
    StructsToJsonEvaluator.evaluate JsonExpressionUtils.lengthOfJsonArray JsonExpressionUtils.jsonObjectKeys Base64.encode
    StringDecode.decode Encode.encode ExpressionImplUtils.isLuhnNumber UrlCodec.encode UrlCodec.decode InitCap
    ParseUrlEvaluator.evaluate MakeInterval MakeDTInterval MakeYMInterval
    """.split()  # noqa: SIM905  # a line for every name says no more
)
# The same, although the last argument may be NULL, or although Catalyst does not call them so.
UNTIL_NULL = frozenset(
    {"ArrayInsert", "ArrayJoin", "ArraysZip", "Levenshtein", "MapConcat", "Sequence", "StringLocate"}
)
# Of these, those whose third argument comes first.
_LAST_FIRST = frozenset({"ArrayJoin", "StringLocate"})
# Every argument is evaluated on every row.
EAGER = frozenset(
    """
    EqualNullSafe IsNull IsNotNull Least Greatest RaiseError ConcatWs CreateArray CreateNamedStruct Size CurrentTimestamp
    CreateMap ArrayRepeat
    GetJsonObject Murmur3Hash XxHash64 Mask FormatString VectorScore
    """.split()  # noqa: SIM905  # a line for every name says no more
)
# The divisor comes first: without one, or with zero where that gives NULL, the dividend is not evaluated.
DIVISIONS = frozenset({"Divide", "IntegralDivide", "Remainder", "Pmod"})
# Functions of lambdas: their other arguments count as those of the first table; a lambda is evaluated for each element.
HIGHER_ORDER = frozenset(
    """
    ArrayTransform ArrayFilter ArrayExists ArrayForAll ArrayAggregate ArraySort ZipWith
    MapFilter TransformKeys TransformValues MapZipWith
    """.split()  # noqa: SIM905  # a line for every name says no more
)
CONDITIONAL = frozenset({"And", "Or", "If", "CaseWhen", "Coalesce", "NaNvl", "In", "Elt"})
# The argument of an aggregate and its FILTER: the value where the condition is TRUE; nobody reads it elsewhere.
FILTER_ARGUMENT = "FilterArgument"
# The condition of a FILTER: only TRUE counts.
FILTER_CONDITION = "FilterCondition"

# What raises for no value of its arguments; Spark's own functions among it are those that people filter by.
NEVER_RAISE = frozenset(
    """
    EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual IsNaN IsNull IsNotNull Not In And Or If CaseWhen
    Coalesce NaNvl Least Greatest NormalizeNaNAndZero Upper Lower Substring Length OctetLength BitLength Concat ConcatWs Like RLike
    StartsWith EndsWith Contains StringTrim StringTrimLeft StringTrimRight StringReplace StringInstr StringLocate Reverse
    Year Quarter Month DayOfMonth DayOfYear DayOfWeek WeekDay WeekOfYear YearOfWeek Hour Minute Second DayName MonthName MonthsBetween
    CreateArray CreateNamedStruct
    GetStructField GetArrayStructFields Size ArrayContains ArrayPosition ArrayRemove ArrayMin ArrayMax ArrayDistinct ArrayUnion ArrayIntersect
    ArrayExcept ArraysOverlap Flatten SortArray ArraysZip MapKeys MapValues MapEntries GetMapValue CurrentTimestamp PreciseTimestampConversion FilterArgument FilterCondition
    Md5 Sha1 Sha2 Crc32 Murmur3Hash XxHash64 InitCap SoundEx Levenshtein GetJsonObject Exp Pow Log Log10 Log2 Logarithm Factorial BitwiseCount WidthBucket Sin Cos Tan Atan2
    ArrayExists ArrayForAll ArrayFilter ArrayTransform ArrayAggregate ZipWith MapFilter TransformValues MapZipWith
    LambdaFunction NamedLambdaVariable InSet AtLeastNNonNulls
    """.split()  # noqa: SIM905  # a line for every name says no more
)


def may_raise(expression: Expression) -> bool:
    """Whether there may be a row for which an expression raises."""
    return any(isinstance(item, Call) and _raises(item) for item in walk(expression))


def _raises(call: Call) -> bool:
    if call.name in ("Like", "RLike"):
        # A constant pattern was looked at when the view was planned.
        return not isinstance(call.args[1], Literal)
    if call.name == "Cast":
        return not widens(call.args[0].type, call.type)
    return call.name not in NEVER_RAISE


_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def widens(source: str, target: str) -> bool:
    """Whether a cast from one type to another raises for no value."""
    if source == target or source == "void":
        return True
    if target == "string":
        return (
            source in _WIDER
            or source in ("boolean", "date", "timestamp", "timestamp_ntz")
            or source.startswith("decimal")
        )
    if source in _WIDER and target in _WIDER:
        return _WIDER.index(source) < _WIDER.index(target)
    wide = decimal_parts(target)
    if wide is None:
        return decimal_parts(source) is not None and target in ("float", "double")
    precision, scale = decimal_parts(source) or (_DIGITS.get(source, 99), 0)
    return scale <= wide[1] and precision - scale <= wide[0] - wide[1]


def evaluation_order(name: str, count: int) -> Sequence[int]:
    """The arguments of a function that stops at a NULL, in the order in which Spark evaluates them."""
    last_first = name in _LAST_FIRST and count == 3
    return (2, 0, 1) if last_first else range(count)


def conditional_arguments(name: str, nullable: Sequence[bool]) -> list[bool]:
    """Which arguments of a function are not evaluated on every row, given which of them may be NULL."""
    count = len(nullable)
    if name in CONDITIONAL:
        return [index > 0 for index in range(count)]
    if name in DIVISIONS:
        return [True, False]
    if name in NULL_INTOLERANT or name in UNTIL_NULL or name in HIGHER_ORDER:
        order = evaluation_order(name, count)
        return [any(nullable[other] for other in order[: order.index(index)]) for index in range(count)]
    return [False] * count
