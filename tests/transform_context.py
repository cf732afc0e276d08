"""Transforms as a pipeline runs them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock import config
from penstock.transforms.base import TransformContext


class Values:
    """Values of a node, as the state backend has them, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        self.values[key] = value

    def remove(self, key: str) -> None:
        self.values.pop(key, None)

    def clear(self) -> None:
        self.values.clear()


def context(spark: SparkSession, **fields: Any) -> TransformContext:
    """The context of a node `n` of a query `q-1`."""
    return TransformContext(spark, **{"query": "q-1", "name": "n", "settings": config.load(), **fields})
