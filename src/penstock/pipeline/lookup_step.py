"""A look-up as a table that `sql` nodes join: all of its rows in every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.step import Step
from penstock.spark.errors.query import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.spec import NodeSpec
    from penstock.transforms.lookup.relation import LookupRelation


class LookupStep(Step):
    """Reads the rows of a look-up, again when they are too old."""

    inputs = ()

    def __init__(self, node: NodeSpec, table: LookupRelation, spark: SparkSession) -> None:
        self._node = node
        self._table = table
        self._spark = spark
        self.nodes = (node.name,)

    def outputs(self) -> Mapping[str, NodeOutput]:
        try:
            return {self._node.name: NodeOutput(self._rows().schema, static=True)}
        finally:
            self._table.close()

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        return {self._node.name: self._rows()}

    def close(self) -> None:
        self._table.close()

    def _rows(self) -> DataFrame:
        with translated(where=str(self._node.place)):
            return self._table.frame(self._spark)
