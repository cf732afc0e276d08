"""What files of JSON and CSV have in common: options for bad records, and columns that the names of folders give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import model_validator

from penstock.options import mistake
from penstock.sources.bad_record import BadRecordOptions
from penstock.sources.spark_options import FileColumns, FilePath

if TYPE_CHECKING:
    from typing import Self

    from pyspark.sql import Column
    from pyspark.sql.types import StructType

FILE = "_file"


class RecordFileOptions(BadRecordOptions):
    """Where the files are, and what happens with records that do not fit."""

    path: FilePath
    columns: FileColumns = None

    @property
    def mode(self) -> str | None:
        """Spark's way to deal with bad records, which replaces ours."""
        mode = self.spark_option("mode")
        return None if mode is None else str(mode)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.mode is not None and self.sets_rule:
            raise mistake(
                "mode is Spark's way to deal with bad records, and on_bad_record is ours",
                hint="leave one of them out",
            )
        return self


def in_order(schema: StructType, folders: StructType, values: Mapping[str, Column]) -> list[Column]:
    """Return the columns of the schema in its order, then those of folders that it does not have; `values` are those
    that are not of folders."""
    from pyspark.sql import functions as F

    names = [*schema.names, *[name for name in folders.names if name not in schema.names]]
    return [values[name] if name in values else F.col(f"`{name}`") for name in names]
