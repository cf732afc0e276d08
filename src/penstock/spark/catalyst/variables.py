"""Session variables (DECLARE, SET VAR) in a view: they have the values that they had when it was registered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.plan.node import Variable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What these say is evaluated before there is a plan, so that no plan shows the variables in it.
_DYNAMIC = re.compile(r"\bIDENTIFIER\s*\(|\bEXECUTE\s+IMMEDIATE\b", re.IGNORECASE)
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")


def is_dynamic(query: str) -> bool:
    """Say whether a query names relations, or is itself, what an expression gives."""
    return _DYNAMIC.search(query) is not None


def declare(spark: SparkSession, front: Any, session: Any, saved: Iterable[Variable]) -> None:
    """Give a planning session the variables of the user's session, and those of a saved view their saved values."""
    front.copyVariables(spark._jsparkSession, session)
    for variable in saved:
        name = variable.name.replace("`", "``")
        session.sql(f"DECLARE OR REPLACE VARIABLE `{name}` {variable.type} DEFAULT {variable.value}")


def bound(
    spark: SparkSession, front: Any, session: Any, plan: Any, query: str | None
) -> tuple[Variable, ...]:
    """The variables that an analyzed plan, or the dynamic text that it was made of, reads; in the order of their names."""
    parts = list(front.variables(plan))
    if query is not None and is_dynamic(query):
        jvm: Any = spark._jvm
        names = jvm.java.util.ArrayList()
        for quoted, plain in _NAME.findall(query):
            name = quoted.replace("``", "`") or plain
            names.add(name)
            names.add(name.lower())  # as Spark keeps it, unless it minds the case
        parts += list(front.variablesNamed(session, names))
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    variables = {name: Variable(name, kind, value) for name, kind, value in triples}
    return tuple(variables[name] for name in sorted(variables))
