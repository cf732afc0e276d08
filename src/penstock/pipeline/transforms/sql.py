"""The transform `sql`: a stateless query of Spark over other nodes, planned anew for every batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from penstock.options import mistake
from penstock.pipeline.node import RowErrors, TransformNode
from penstock.sql.lexer import Kind, significant, split
from penstock.sql.relation import BEGINS_QUERY, read_names, texts_of_call

MEMBERSHIP = "dynamic_table_check"
"""The function that asks a dynamic table, which it names by a text."""
SEVERAL_INPUTS = "unite the rows in a `sql` node without on_error, and read that"
"""The hint for a query that leaves rows out, and reads those of several nodes."""


class SqlNode(RowErrors, TransformNode):
    """Filters and computes rows by a query of Spark: projections, functions, `explode`, `UNION ALL`, and joins with
    look-ups and tables that stand still.

    It sees one batch at a time and remembers nothing; aggregates, windows and joins of streams are for `view`. `_op`
    passes without being selected: a delete passes any filter, and an update that a filter does not let through
    becomes a delete.

    With `on_error`, a row for which an expression of the query raises is left out, whole, and all others are what
    Spark makes of them. Such a query reads the rows of one node, joins nothing but look-ups, and asks for no random
    values.
    """

    type: Literal["sql"] = Field("sql", description="`sql`")
    sql: str = Field(
        description="the query; it reads nodes by their names, as tables, and runs for each batch on its own: joins of streams, "
        "aggregates and windows are for `view`"
    )

    @field_validator("sql")
    @classmethod
    def _is_one_query(cls, text: str) -> str:
        return one_query(text)

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        asked = (names.get(name.lower()) for name in texts_of_call(self.sql, MEMBERSHIP))
        tables = (name for name in asked if name is not None)
        return tuple(dict.fromkeys((*read_names(self.sql, names), *tables)))


def one_query(text: str) -> str:
    """Return the text of a query as it is; refuses what is no single query, without understanding more of it."""
    statements = split(text)
    if len(statements) != 1:
        raise mistake(
            f"must be one query, got {len(statements)} statements", hint="write SELECT ... FROM a_node"
        )
    words = significant(text)
    if any(word.kind is Kind.UNCLOSED for word in words):
        raise mistake("has a quote or a comment that does not end", hint="close it")
    first = next((word for word in words if word.text != "("), words[0])
    if first.upper not in BEGINS_QUERY:
        raise mistake(f"must be a query, and begins with {first.text!r}", hint="write SELECT ... FROM a_node")
    return text
