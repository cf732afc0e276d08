"""On which rows Spark evaluates the arguments of a function, by the name of its Catalyst class.

A function that is in no table here is evaluated eagerly, which is never wrong and at worst raises where Spark does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.expression import Call, Expression, walk

# NULL when an argument is; the arguments behind the first NULL are not evaluated.
NULL_INTOLERANT = frozenset(
    """
    Add Subtract Multiply UnaryMinus UnaryPositive Abs PromotePrecision
    EqualTo LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual IsNaN Not
    Cast NormalizeNaNAndZero UnscaledValue MakeDecimal CheckOverflow
    Upper Lower Substring Length OctetLength BitLength Concat Like RLike StartsWith EndsWith Contains
    StringTrim StringTrimLeft StringTrimRight StringReplace StringLPad StringRPad StringInstr StringLocate Reverse
    StringRepeat StringSpace StringSplitSQL StringTranslate SubstringIndex Ascii Hex
    Year Quarter Month DayOfMonth DayOfYear DayOfWeek WeekDay WeekOfYear YearOfWeek Hour Minute Second SecondWithFraction
    DateAdd DateSub DateDiff AddMonths LastDay TruncDate TruncTimestamp MakeDate DateAddYMInterval TimestampAddYMInterval
    PreciseTimestampConversion TimestampAddInterval TimeAdd SubtractDates SubtractTimestamps UnixDate DateFromUnixDate UnixSeconds UnixMillis UnixMicros
    MillisToTimestamp MicrosToTimestamp SecondsToTimestamp DateFormatClass FromUnixTime GetTimestamp UnixTimestamp ToUnixTimestamp
    FromUTCTimestamp ToUTCTimestamp ConvertTimezone TimestampAdd TimestampDiff MonthsBetween NextDay DayName MonthName MakeTimestamp
    Round BRound RoundFloor RoundCeil Floor Ceil Sqrt Rint Signum
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot ShiftLeft ShiftRight ShiftRightUnsigned
    GetStructField GetArrayItem ElementAt GetMapValue ArrayContains MapKeys MapValues
    """.split()  # noqa: SIM905  # a line for every name says no more
)
# Every argument is evaluated on every row.
EAGER = frozenset(
    """
    EqualNullSafe IsNull IsNotNull Least Greatest RaiseError ConcatWs CreateArray CreateNamedStruct Size CurrentTimestamp
    """.split()  # noqa: SIM905  # a line for every name says no more
)
# The divisor comes first: without one, or with zero where that gives NULL, the dividend is not evaluated.
DIVISIONS = frozenset({"Divide", "IntegralDivide", "Remainder", "Pmod"})
CONDITIONAL = frozenset({"And", "Or", "If", "CaseWhen", "Coalesce", "NaNvl", "In"})
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
    GetStructField Size CurrentTimestamp PreciseTimestampConversion FilterArgument FilterCondition
    Md5 Sha1 Sha2 Crc32 Murmur3Hash XxHash64 InitCap SoundEx Levenshtein GetJsonObject Exp Log Sin Cos Tan Atan2
    ArrayExists ArrayForAll ArrayFilter ArrayTransform LambdaFunction NamedLambdaVariable InSet AtLeastNNonNulls
    """.split()  # noqa: SIM905  # a line for every name says no more
)


def may_raise(expression: Expression) -> bool:
    """Whether there may be a row for which an expression raises."""
    return any(isinstance(item, Call) and item.name not in NEVER_RAISE for item in walk(expression))


def conditional_arguments(name: str, nullable: Sequence[bool]) -> list[bool]:
    """Which arguments of a function are not evaluated on every row, given which of them may be NULL."""
    count = len(nullable)
    if name in CONDITIONAL:
        return [index > 0 for index in range(count)]
    if name in DIVISIONS:
        return [True, False]
    if name in NULL_INTOLERANT:
        return [any(nullable[:index]) for index in range(count)]
    return [False] * count
