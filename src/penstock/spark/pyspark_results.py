"""PySpark's own ways to fetch rows, made to raise when the JVM's end of them has failed.

`collect()` and `toLocalIterator()` take the end of the socket for the end of the rows: when the thread that serves
them dies, or its JVM does, rows are missing without an error. Here they ask the server how it ended. `toArrow()` and
`toPandas()` go through `arrow_stream`, so that their rows come in batches bounded by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.spark import arrow_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Load = Callable[[Any, Any], Iterator[Any]]


def install() -> None:
    """Change PySpark's functions; a second call changes nothing."""
    from pyspark.core import context, rdd
    from pyspark.sql.classic import dataframe
    from pyspark.sql.pandas.conversion import PandasConversionMixin

    frames: Any = PandasConversionMixin
    if frames._collect_as_arrow is _collect_as_arrow:
        return
    frames._collect_as_arrow = _collect_as_arrow
    for module in (context, rdd, dataframe):
        for name, heard in (("_load_from_socket", _loaded), ("_local_iterator_from_socket", _iterated)):
            if hasattr(module, name):
                setattr(module, name, heard(getattr(module, name)))


def _loaded(load: Load) -> Load:
    def rows(served: Any, serializer: Any) -> Iterator[Any]:
        server = served[2]
        try:
            yield from load(served, serializer)
        except Exception:
            arrow_stream.join(server)
            raise
        arrow_stream.join(server)

    return rows


def _iterated(iterate: Load) -> Load:
    def rows(items: Iterator[Any], server: Any) -> Iterator[Any]:
        try:
            yield from items
        except (EOFError, OSError):
            arrow_stream.join(server)
            raise

    return lambda served, serializer: rows(iterate(served, serializer), served[2])


def _collect_as_arrow(
    self: DataFrame, split_batches: bool = False, empty_list_if_zero_records: bool = True
) -> list[pa.RecordBatch]:
    import pyarrow as pa

    schema, batches = arrow_stream.collect(self)
    if split_batches:
        # So that pandas can let go of one column after the other, each must have memory of its own.
        batches = [
            pa.RecordBatch.from_arrays([pa.concat_arrays([array]) for array in batch], schema=batch.schema)
            for batch in batches
        ]
    if batches or empty_list_if_zero_records:
        return batches
    return [pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)]
