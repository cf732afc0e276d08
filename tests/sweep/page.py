"""The reference page of the sweep: function -> tier, right or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sweep.outcome import Outcome

HEAD = """\
# Functions

Every function and operator of Spark (`SHOW FUNCTIONS`), called in a view with arguments of the types that it takes and values at their edges, in several
ticks with deletes, next to Spark's batch query over the same rows. This page is written by `tools/sweep_functions.py`; `make test`
compares some functions again, others in every run, and fails when an answer is not Spark's, to the bit and to the error (sums of doubles to nine digits), or when the page is not current.

- **tier**: who computes it, [as `explain` shows](kernel.md), with the reason when that is not the kernel; by the types of the arguments where it depends on them.
- **answer**: *right*; *by order*, where Spark's own answer is another one when the same rows come in another order, as sketches and sums of doubles are; or *refused* with the code and the reason: `register_view` then raises, and no row is ever wrong. Rows for which a call raises in Spark are refused in the view with the same code.
"""
_TITLES = {
    "agg_funcs": "Aggregate functions",
    "array_funcs": "Functions of arrays",
    "bitwise_funcs": "Functions of bits",
    "collection_funcs": "Functions of collections",
    "conditional_funcs": "Conditional functions",
    "conversion_funcs": "Conversions",
    "csv_funcs": "CSV",
    "datetime_funcs": "Dates and times",
    "generator_funcs": "Generators",
    "hash_funcs": "Hashes",
    "json_funcs": "JSON",
    "lambda_funcs": "Higher-order functions",
    "map_funcs": "Functions of maps",
    "math_funcs": "Mathematical functions",
    "misc_funcs": "Other functions",
    "operator": "Operators",
    "predicate_funcs": "Predicates",
    "protobuf_funcs": "Protobuf",
    "st_funcs": "Geometry",
    "string_funcs": "Functions of text",
    "struct_funcs": "Functions of structs",
    "table_funcs": "Table functions",
    "url_funcs": "URLs",
    "variant_funcs": "VARIANT",
    "window_funcs": "Window functions",
    "xml_funcs": "XML",
}
_MOST_KINDS = 8


def page(outcomes: Iterable[Outcome]) -> str:
    """Return the whole page."""
    by_group: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        by_group.setdefault(outcome.call.group, {}).setdefault(outcome.call.function, []).append(outcome)
    lines = [HEAD, _summary(by_group)]
    for group in sorted(by_group, key=lambda name: _TITLES.get(name, name)):
        lines += [f"## {_TITLES.get(group, group)}\n", "| function | tier | answer |\n|---|---|---|"]
        lines += [line(name, by_group[group][name]) for name in sorted(by_group[group])]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _summary(by_group: dict[str, dict[str, list[Outcome]]]) -> str:
    functions = [outcomes for functions in by_group.values() for outcomes in functions.values()]
    count = len(functions)
    wholly = sum(
        all(one.tier in ("kernel", "") for one in some) and any(one.tier for one in some)
        for some in functions
    )
    partly = sum(any(one.tier == "kernel" for one in some) for some in functions) - wholly
    refused = sum(all(one.verdict == "refused" for one in some) for some in functions)
    return (
        f"Of {count} functions the kernel computes {wholly} itself and {partly} for some types; {refused} are refused, "
        f"and the rest is Spark's own code over the changed rows, or over all rows.\n"
    )


def line(name: str, outcomes: list[Outcome]) -> str:
    """Return the line of a function."""
    return f"| `{name.replace('|', chr(92) + '|')}` | {_tiers(outcomes)} | {_answers(outcomes)} |"


def _tiers(outcomes: list[Outcome]) -> str:
    by_tier: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.tier:
            reason = outcome.reason if outcome.tier != "kernel" else ""
            by_tier.setdefault((outcome.tier, reason), []).append(outcome)
    shown = []
    for (tier, reason), some in sorted(
        by_tier.items(), key=lambda item: ("kernel", "spark", "recompute").index(item[0][0])
    ):
        why = f" ({_cell(reason)})" if reason else ""
        which = f" for {_kinds(some)}" if len(by_tier) > 1 and _kinds(some) else ""
        shown.append(f"{tier}{which}{why}")
    return "; ".join(shown) or "none"


def _answers(outcomes: list[Outcome]) -> str:
    refused: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict == "refused":
            refused.setdefault((outcome.code, outcome.reason), []).append(outcome)
    shown = [
        f"refused{f' for {_kinds(some)}' if len(some) < len(outcomes) and _kinds(some) else ''}: `{code}`, {_cell(reason)}"
        for (code, reason), some in refused.items()
    ]
    by_order = [outcome for outcome in outcomes if outcome.verdict == "by order"]
    if by_order:
        shown.insert(
            0,
            f"by order{f' for {_kinds(by_order)}' if len(by_order) < len(outcomes) and _kinds(by_order) else ''}",
        )
    shown += list(
        dict.fromkeys(
            f"raises `{outcome.code}`, as in Spark"
            for outcome in outcomes
            if outcome.verdict == "right" and not outcome.tier
        )
    )
    if any(outcome.verdict == "right" and outcome.tier for outcome in outcomes):
        shown.insert(0, "right")
    if any(outcome.verdict == "WRONG" for outcome in outcomes):
        shown.insert(0, "**WRONG**")
    return "; ".join(shown)


def _kinds(outcomes: list[Outcome]) -> str:
    seen = list(dict.fromkeys(", ".join(outcome.call.kinds) for outcome in outcomes))
    named = [f"`{kinds}`" for kinds in seen if kinds]
    return " ".join(named[:_MOST_KINDS]) + (" …" if len(named) > _MOST_KINDS else "")


def _cell(text: str) -> str:
    text = re.sub(
        r"\b(?:t|sweep_table)\.c\d+\b|-?\d{9,}L", "…", text
    )  # columns of the sweep, seeds that Spark draws
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def undecided(outcomes: Iterable[Outcome], names: Iterable[str]) -> Iterator[str]:
    """The functions that are neither right nor refused with a reason."""
    seen = {outcome.call.function for outcome in outcomes}
    yield from (name for name in names if name not in seen)
