"""Write docs/reference/kernel.md: what the kernel computes itself, from its own registries and docstrings.

tools/write_reference.py            write the page anew; a test says when it is not current
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from penstock import operators
from penstock.functions import aggregates, evaluate, scalars, windows
from penstock.functions.generate import GENERATORS
from penstock.operators.base import Operator
from penstock.plan.node import AggregateCall

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "kernel.md"
# Operators that stand outside the folder of operators, and who runs them.
ELSEWHERE = {"penstock.spark.operator": "spark"}
HIDDEN = {"Stateless", "Arrange", "Select", "Output"}
HEAD = """\
# Operators and functions

What the kernel computes itself, exactly as Spark does, and what a tick costs. This page is written by `tools/write_reference.py` from the
kernel's own tables. Names are those of Spark's Catalyst classes, because that is what `explain` shows; functions that Spark rewrites into
these (`nvl` into `Coalesce`, `left` into `Substring`) count as them. Some functions are the kernel's for certain types only.
For a view of yours, `flow.explain(view)` says which operator runs where, and why.

| tier | who computes | cost of a tick |
|---|---|---|
| `kernel` | the kernel | as below |
| `spark` | Spark, over the changed rows only: any other scalar function, and Python functions | the delta, and a call to Spark |
| `recompute` | Spark, one operator over all rows of its inputs: any other aggregate, window function or operator | the data |
"""


def page() -> str:
    """Return the whole page."""
    return (
        "\n".join([HEAD, *_operators(), *_scalars(), *_aggregates(), *_windows(), *_generators()]).rstrip()
        + "\n"
    )


def _operators() -> Iterator[str]:
    yield "## Operators\n"
    yield "| operator | gives | tier | cost |\n|---|---|---|---|"
    for name, what, tier, cost in sorted(_operator_rows()):
        yield f"| {name} | {what} | `{tier}` | {cost} |"
    yield ""


def _operator_rows() -> Iterator[tuple[str, str, str, str]]:
    names = [f"{operators.__name__}.{found.name}" for found in pkgutil.iter_modules(operators.__path__)]
    for module in map(importlib.import_module, [*names, *ELSEWHERE]):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ != module.__name__ or Operator not in kind.__mro__[1:]:
                continue
            if name in HIDDEN or name.startswith("_"):
                continue
            own = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
            cost = _cost(own) or _cost(inspect.cleandoc(module.__doc__ or ""))
            assert cost, f"{module.__name__}.{name} does not say what it costs"
            tier = ELSEWHERE.get(module.__name__, "kernel")
            yield name, _sentence(own), "recompute" if name == "Recomputed" else tier, cost


def _cost(text: str) -> str:
    found = re.search(r"Cost: (.*?)(?:\.(?:\s|$)|\n\n|$)", text, re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def _sentence(text: str) -> str:
    return " ".join(re.split(r"\.(?:\s|$)", text, maxsplit=1)[0].split())


def _scalars() -> Iterator[str]:
    yield "## Scalar functions\n\nTier `kernel`, cost: delta. `CurrentTimestamp` (now(), current_date) is the time of the tick.\n"
    yield "| family | functions |\n|---|---|"
    listed: set[str] = set()
    for family in _families():
        names = sorted(family.FUNCTIONS)
        listed.update(names)
        yield f"| {family.__name__.rpartition('.')[2]} | {_codes(names)} |"
    assert listed == set(evaluate.FUNCTIONS), "a family of functions is not on the page"
    yield ""


def _families() -> list[ModuleType]:
    names = [f"{scalars.__name__}.{found.name}" for found in pkgutil.iter_modules(scalars.__path__)]
    modules = [importlib.import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "FUNCTIONS")]


def _aggregates() -> Iterator[str]:
    yield "## Aggregate functions\n\nTier `kernel`; DISTINCT and FILTER go with all of them.\n"
    yield "| function | cost |\n|---|---|"
    for name in sorted(aggregates.AGGREGATES.builtin):
        yield f"| `{name}` | {aggregates.cost(AggregateCall(name, (0,), 'bigint'))} |"
    yield ""


def _windows() -> Iterator[str]:
    own = [name for name in windows.WINDOWS.builtin if name not in aggregates.AGGREGATES.builtin]
    shared = [name for name in windows.WINDOWS.builtin if name in aggregates.AGGREGATES.builtin]
    yield "## Window functions\n\nTier `kernel`, cost: touched partitions. `row_number() <= k` is a top-k and costs the delta.\n"
    yield f"Ranks and offsets: {_codes(sorted(own))}.\n"
    yield f"Aggregates with a frame: {_codes(sorted(shared))}.\n"


def _generators() -> Iterator[str]:
    yield "## Generators\n\nTier `kernel`, cost: delta.\n"
    yield f"{_codes(sorted(GENERATORS))}."


def _codes(names: list[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
