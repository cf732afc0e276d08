"""Functions that a setting or a flag makes another one get a name that the kernel does not know."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark.catalyst.legacy import SETTINGS, leave_to_spark


def _call(
    name: str, child: str = "string", kind: str = "string", arguments: dict[str, bool] | None = None
) -> dict[str, Any]:
    return {"c": name, "t": kind, "k": [{"c": "AttributeReference", "t": child}], "a": arguments or {}}


def _named(item: dict[str, Any], values: dict[str, str]) -> str:
    plan = {"c": "Project", "k": [], "a": {"projectList": [{"e": item}]}}
    leave_to_spark(plan, values)
    return str(item["c"])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_concerns_its_functions_unless_it_has_the_value_of_the_kernel(name: str) -> None:
    setting = SETTINGS[name]
    for function in setting.functions:
        changed, same = _call(function, "array<int>"), _call(function, "array<int>")
        assert _named(changed, {name: "another"}) == f"{function} with {name}"
        assert _named(same, {name: setting.value}) == function
    assert _named(_call("Length"), {name: "another"}) == "Length"


def test_a_cast_that_the_setting_does_not_concern_stays_in_the_kernel() -> None:
    values = {"spark.sql.legacy.castComplexTypesToString.enabled": "true"}
    assert _named(_call("Cast", "int"), values) == "Cast"
    assert _named(_call("Cast", "array<int>", "array<string>"), values) == "Cast"


@pytest.mark.parametrize(
    ("function", "flag", "known"),
    [
        ("PercentileDisc", "legacyCalculation", False),
        ("StddevSamp", "nullOnDivideByZero", True),
    ],
)
def test_a_flag_that_the_kernel_does_not_have(function: str, flag: str, known: bool) -> None:
    assert _named(_call(function, arguments={flag: known}), {}) == function
    assert _named(_call(function), {}) == function
    assert _named(_call(function, arguments={flag: not known}), {}) == f"{function} with {flag}"
