"""Names of tables in Iceberg catalogs: in full, whatever `USE` says, so that every session finds the same table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.spark.catalyst import bridge

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

CATALOGS = ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog")
SESSION_CATALOG = "spark_catalog"
_PART = r"(?:`(?:[^`]|``)*`|\w+)"
_NAME = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})*")


def is_in_lake(spark: SparkSession, name: str) -> bool:
    """Whether a name is one of an Iceberg catalog."""
    catalog, _, rest = name.partition(".")
    return "." in rest and spark.conf.get(f"spark.sql.catalog.{catalog}", None) in CATALOGS


def is_plain(name: str) -> bool:
    """Whether a name needs no quotes in SQL.

    >>> is_plain("lake.shop.orders"), is_plain("lake.shop.my-orders")
    (True, False)
    """
    return all(re.fullmatch(r"(?!\d+$)\w+", part, re.ASCII) for part in name.split("."))


def full_name(spark: SparkSession, name: str) -> str:
    """A name with the catalog and the schema that `USE` has chosen, if that is an Iceberg catalog; any other as it is."""
    first = name.partition(".")[0]
    is_catalog = "." in name and spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
    current = spark.catalog.currentCatalog()
    if is_catalog or current == SESSION_CATALOG or not is_in_lake(spark, f"{current}.schema.table"):
        return name
    schema = "" if "." in name else spark.catalog.currentDatabase()
    return ".".join(part for part in (current, schema, name) if part)


def with_full_names(spark: SparkSession, query: str, own: Collection[str]) -> str:
    """A query in which the tables of the Iceberg catalog that `USE` has chosen have their full names; `own` are names
    that mean something else."""
    if spark.catalog.currentCatalog() == SESSION_CATALOG:
        return query
    jsession: Any = spark._jsparkSession
    listed = list(bridge.front(spark).tableNames(jsession, query))
    own_names = {name.casefold() for name in own}
    text = query.encode("utf-16-le")  # as Java counts
    for name, place in sorted(zip(listed[::2], listed[1::2], strict=True), key=lambda pair: -pair[1]):
        dotted = name.replace("\n", ".")
        full = full_name(spark, dotted)
        if (
            full == dotted
            or dotted.casefold() in own_names
            or not is_plain(full)
            or ("." not in dotted and jsession.sessionState().catalog().getTempView(dotted).isDefined())
            or not spark.catalog.tableExists(full)
        ):
            continue
        rest = text[2 * place :].decode("utf-16-le")
        written = _NAME.match(rest)
        if written is not None and re.sub(r"[`\s]", "", written[0]).casefold() == dotted.casefold():
            rest = full + rest[written.end() :]
            text = text[: 2 * place] + rest.encode("utf-16-le")
    return text.decode("utf-16-le")
