"""Settings of Spark and flags of its functions under which a function is not the one that the kernel has.

Most settings show in the plan that Spark makes. Some are read when a function is evaluated, and some are flags that
only few people know. A function under such a setting gets another name in the described plan, one that the kernel
does not know, and is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_TIMES = frozenset({"DateFormatClass", "GetTimestamp", "FromUnixTime", "UnixTimestamp", "ToUnixTimestamp"})
_MOMENTS = frozenset(
    {
        "Corr",
        "CovSample",
        "CovPopulation",
        "Kurtosis",
        "RegrReplacement",
        "Skewness",
        "StddevPop",
        "StddevSamp",
        "VariancePop",
        "VarianceSamp",
    }
)


def _of_nested(item: Mapping[str, Any]) -> bool:
    """Whether a cast is of an array, a map or a struct to text."""
    child = item["k"][0].get("t", "")
    return item.get("t") == "string" and child.startswith(("array<", "map<", "struct<"))


@dataclass(frozen=True, slots=True)
class LegacySetting:
    """A setting that functions read when they are evaluated, the value with which the kernel has them, and which they are."""

    value: str
    functions: frozenset[str]
    concerns: Callable[[Mapping[str, Any]], bool] = lambda item: True


SETTINGS: Mapping[str, LegacySetting] = {
    "spark.sql.icu.caseMappings.enabled": LegacySetting("true", frozenset({"Upper", "Lower", "InitCap"})),
    "spark.sql.legacy.castComplexTypesToString.enabled": LegacySetting(
        "false", frozenset({"Cast"}), _of_nested
    ),
    "spark.sql.legacy.raiseErrorWithoutErrorClass": LegacySetting("false", frozenset({"RaiseError"})),
    "spark.sql.legacy.timeParserPolicy": LegacySetting("CORRECTED", _TIMES),
    "spark.sql.legacy.truncateForEmptyRegexSplit": LegacySetting(
        "false", frozenset({"StringSplit", "StringToMap"})
    ),
}
# Flags of functions, by their names in Catalyst, with the value that the kernel has.
FLAGS: Mapping[str, Mapping[str, bool]] = {
    "PercentileDisc": {"legacyCalculation": False},
    **{name: {"nullOnDivideByZero": True} for name in _MOMENTS},
}


def leave_to_spark(plan: Any, values: Mapping[str, str]) -> None:
    """Rename the functions of a described plan that the kernel has otherwise; `values` are those of the settings."""
    changed = {
        name: setting
        for name, setting in SETTINGS.items()
        if values.get(name, setting.value) != setting.value
    }
    for item in _described(plan):
        why = _why(item, changed)
        if why is not None:
            item["c"] = f"{item['c']} with {why}"


def _why(item: Mapping[str, Any], changed: Mapping[str, LegacySetting]) -> str | None:
    for name, setting in changed.items():
        if item["c"] in setting.functions and setting.concerns(item):
            return name
    arguments = item.get("a", {})
    for name, value in FLAGS.get(item["c"], {}).items():
        if arguments.get(name, value) != value:
            return name
    return None


def _described(value: Any) -> Iterator[dict[str, Any]]:
    """Everything in a described plan that has the name of a class."""
    if isinstance(value, dict):
        if isinstance(value.get("c"), str):
            yield value
        for part in value.values():
            yield from _described(part)
    elif isinstance(value, list):
        for part in value:
            yield from _described(part)
