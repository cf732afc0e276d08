"""A DataFrame over the rows of one of its leaves: which leaves there are, and the same DataFrame over a relation of a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, suggest
from penstock.spark import errors
from penstock.spark.catalyst import bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class OverLeaf:
    """A DataFrame in which the relation `name` of a flow stands for the rows of `leaf`."""

    name: str
    leaf: DataFrame
    frame: DataFrame


def over_leaf(frame: DataFrame, source: str | DataFrame | None) -> OverLeaf:
    """A DataFrame over one leaf: its only one, or the one that `source` says by name or as a DataFrame; ConfigError otherwise."""
    if not hasattr(frame, "_jdf"):
        raise _refused(
            f"{type(frame).__module__}.{type(frame).__name__} is no DataFrame of a Spark in this process",
            "make it with a session of Session.embedded()",
        )
    if frame.isStreaming:
        raise _refused(
            "the DataFrame is a stream", "write it to a flow: stream.write_stream.to_flow(flow, 'orders')"
        )
    spark = frame.sparkSession
    front = bridge.front(spark)
    try:
        analyzed = frame._jdf.queryExecution().analyzed()
        listed = list(front.leaves(analyzed))
        leaves = list(zip(listed[::2], listed[1::2], strict=True))
        label, part = _chosen(leaves, source)
        name = _relation_name(label, [other for other, _ in leaves if other != label])
        over = front.feed(spark._jsparkSession, analyzed, part, name)
        if over is None:
            raise _refused(
                "the DataFrame is not made of the one that source= gives",
                f"give one that it was built from, or the name of a leaf: {_listed(leaves)}",
            )
        return OverLeaf(name, _frame(frame, part), _frame(frame, over))
    except Exception as error:
        raise errors.translate(error, spark=spark) from None


def _chosen(leaves: list[tuple[str | None, Any]], source: str | DataFrame | None) -> tuple[str | None, Any]:
    """The leaf that is to be fed."""
    if source is not None and not isinstance(source, str):
        return None, source._jdf.queryExecution().analyzed()
    if source is not None:
        named = [leaf for leaf in leaves if leaf[0] is not None and _is_named(leaf[0], source)]
        if len(named) == 1:
            return named[0]
        labels = [label for label, _ in leaves if label is not None]
        raise ConfigError(
            f"the DataFrame has {'no leaf' if not named else 'several leaves'} of the name '{source}'",
            code="INCREMENTAL_SOURCE",
            hint=suggest(source, labels, what="leaf")
            if labels
            else "give the DataFrame of the leaf: source=df",
        )
    if len(leaves) == 1:
        return leaves[0]
    if not leaves:
        raise _refused(
            "the DataFrame has no rows that could change", "build it from a table, a file or other rows"
        )
    raise _refused(
        f"the DataFrame has {len(leaves)} leaves: {_listed(leaves)}",
        "say which one changes, by its name or as a DataFrame: to_incremental(df, source=...); the others stay as they are",
    )


def _is_named(label: str, source: str) -> bool:
    """Whether a name is that of a leaf, or the last part of it."""
    wanted, own = source.casefold(), label.replace("`", "").casefold()
    return wanted in (own, own.rpartition(".")[2])


def _relation_name(label: str | None, others: list[str | None]) -> str:
    """The name of the relation: that of the leaf, unless a static table has it."""
    name = "rows" if label is None else label.replace("`", "").rpartition(".")[2]
    taken = {other.replace("`", "").casefold() for other in others if other is not None}
    while name.casefold() in taken or name.startswith("static_"):
        name = f"fed_{name}"
    return name


def _listed(leaves: list[tuple[str | None, Any]]) -> str:
    described = []
    for label, leaf in leaves:
        columns = ", ".join(item.name() for item in bridge.scala_list(leaf.output()))
        described.append(f"{(label or 'without a name').replace('`', '')} ({columns})")
    return "; ".join(described)


def _frame(frame: DataFrame, plan: Any) -> DataFrame:
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError(message, code="INCREMENTAL_SOURCE", hint=hint)
