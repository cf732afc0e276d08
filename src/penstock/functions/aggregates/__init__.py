"""Aggregate functions, by the name of their Catalyst class.

Each entry makes a `Function` from a call and the parts it shares with other calls. What is not in the table is left to Spark:
approximations (`approx_percentile`, sketches), whose value depends on how Spark splits its work,
`histogram_numeric`, and functions that users register.
"""

from __future__ import annotations

from penstock.plan.node import AggregateCall
from penstock.registry import Registry

_HERE = "penstock.functions.aggregates"

AGGREGATES = Registry(
    "aggregate function",
    {
        "AnyValue": f"{_HERE}.extreme:make_first",
        "Average": f"{_HERE}.average:make_average",
        "BitAndAgg": f"{_HERE}.bitwise:make_and",
        "BitOrAgg": f"{_HERE}.bitwise:make_or",
        "BitXorAgg": f"{_HERE}.bitwise:make_xor",
        "BoolAnd": f"{_HERE}.extreme:make_min",
        "BoolOr": f"{_HERE}.extreme:make_max",
        "CollectList": f"{_HERE}.collect:make_list",
        "CollectSet": f"{_HERE}.collect:make_set",
        "Corr": f"{_HERE}.pair:make_corr",
        "Count": f"{_HERE}.count:Count",
        "CountIf": f"{_HERE}.count:CountIf",
        "CovPopulation": f"{_HERE}.pair:make_covar_pop",
        "CovSample": f"{_HERE}.pair:make_covar_samp",
        "First": f"{_HERE}.extreme:make_first",
        "HyperLogLogPlusPlus": f"{_HERE}.approximate:make_approx_count_distinct",
        "Kurtosis": f"{_HERE}.moment:make_kurtosis",
        "Last": f"{_HERE}.extreme:make_last",
        "ListAgg": f"{_HERE}.collect:make_list_agg",
        "Max": f"{_HERE}.extreme:make_max",
        "MaxBy": f"{_HERE}.extreme:make_max_by",
        "Median": f"{_HERE}.percentile:make_percentile",
        "Min": f"{_HERE}.extreme:make_min",
        "MinBy": f"{_HERE}.extreme:make_min_by",
        "Mode": f"{_HERE}.percentile:make_mode",
        "Percentile": f"{_HERE}.percentile:make_percentile",
        "PercentileCont": f"{_HERE}.percentile:make_percentile",
        "PercentileDisc": f"{_HERE}.percentile:make_percentile_disc",
        "PivotFirst": f"{_HERE}.pivot:make_pivot",
        "RegrIntercept": f"{_HERE}.pair:make_intercept",
        "RegrR2": f"{_HERE}.pair:make_determination",
        "RegrReplacement": f"{_HERE}.moment:make_squares",
        "RegrSXY": f"{_HERE}.pair:make_products",
        "RegrSlope": f"{_HERE}.pair:make_slope",
        "Skewness": f"{_HERE}.moment:make_skewness",
        "StddevPop": f"{_HERE}.moment:make_stddev_pop",
        "StddevSamp": f"{_HERE}.moment:make_stddev_samp",
        "Sum": f"{_HERE}.sum:make_sum",
        "VariancePop": f"{_HERE}.moment:make_var_pop",
        "VarianceSamp": f"{_HERE}.moment:make_var_samp",
    },
)

# Functions that read all values of every touched group; all others cost time in proportion to the change.
READ_GROUPS = frozenset(
    {
        "CollectList",
        "CollectSet",
        "HyperLogLogPlusPlus",
        "ListAgg",
        "Median",
        "Mode",
        "Percentile",
        "PercentileCont",
        "PercentileDisc",
    }
)
_NUMERIC_ONLY = frozenset({"Percentile", "PercentileCont", "PercentileDisc", "Median"})


def unsupported(call: AggregateCall) -> str | None:
    """Return why the kernel does not support this call, or None when it does.

    >>> unsupported(AggregateCall("Sum", (0,), "bigint")) is None
    True
    >>> unsupported(AggregateCall("ApproximatePercentile", (0,), "bigint"))
    'aggregate function ApproximatePercentile is not in the kernel'
    """
    if call.function not in AGGREGATES.builtin:
        return f"aggregate function {call.function} is not in the kernel"
    if call.function in _NUMERIC_ONLY and ("month" in call.type or "year" in call.type):
        return f"{call.function} over year-month intervals is not in the kernel"
    if call.function == "PivotFirst":
        # Spark looks values up as Scala compares them, and 0.0 equals -0.0 there.
        listed = [
            0.0 if item.value == 0 else repr(item.value) for item in call.option("pivotColumnValues", ())
        ]
        if len(set(listed)) < len(listed):
            return "PIVOT with a value that is listed twice is not in the kernel"
    if call.function in ("MinBy", "MaxBy") and len(call.args) != 2:
        return f"{call.function} with a number of rows is not in the kernel"
    return None


def cost(call: AggregateCall) -> str:
    """Return what a call costs per tick: "delta" or "touched groups"."""
    return "touched groups" if call.function in READ_GROUPS else "delta"
