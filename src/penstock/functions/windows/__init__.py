"""Window functions, by the name of their Catalyst class; aggregate functions are window functions as well."""

from __future__ import annotations

from penstock.functions import aggregates
from penstock.functions.aggregates import AGGREGATES
from penstock.plan.node import WindowCall
from penstock.registry import Registry

_HERE = "penstock.functions.windows"

WINDOWS = Registry(
    "window function",
    {
        "CumeDist": f"{_HERE}.ranking:cume_dist",
        "DenseRank": f"{_HERE}.ranking:dense_rank",
        "First": f"{_HERE}.offset:first_value",
        "Lag": f"{_HERE}.offset:shift",
        "Last": f"{_HERE}.offset:last_value",
        "Lead": f"{_HERE}.offset:shift",
        "NTile": f"{_HERE}.ranking:ntile",
        "NthValue": f"{_HERE}.offset:nth_value",
        "PercentRank": f"{_HERE}.ranking:percent_rank",
        "Rank": f"{_HERE}.ranking:rank",
        "RowNumber": f"{_HERE}.ranking:row_number",
        **{
            name: f"{_HERE}.framed:framed"
            for name in AGGREGATES.builtin
            if name not in ("AnyValue", "First", "HyperLogLogPlusPlus", "Last", "ListAgg")
        },
        "AnyValue": f"{_HERE}.offset:first_value",
    },
)

# Functions that look at the positions of rows alone, not at their columns.
RANKING = frozenset({"CumeDist", "DenseRank", "NTile", "PercentRank", "Rank", "RowNumber"})


def unsupported(call: WindowCall) -> str | None:
    """Return why the kernel does not support this window call, or None when it does."""
    if call.function not in WINDOWS.builtin:
        return f"window function {call.function} is not in the kernel"
    if call.function in AGGREGATES.builtin:
        from penstock.functions.windows.framed import as_aggregate

        reason = aggregates.unsupported(as_aggregate(call))
        if reason is not None:
            return reason
    bounds = (call.frame.lower, call.frame.upper)
    if call.frame.unit == "range" and any(isinstance(bound, tuple) and bound[0] for bound in bounds):
        return "a RANGE frame with an offset in months is not in the kernel"
    return None
