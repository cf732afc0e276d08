"""What travels between the driver and shards, and between shards, as bytes: rows are Arrow IPC, everything else is pickled.

The processes that talk to each other run the same version of penstock; nothing of this is a file format.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta


def dumps(value: Any) -> bytes:
    """Anything that a pickle can hold, with rows in it."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def loads(content: bytes | memoryview) -> Any:
    """What `dumps` has written."""
    return pickle.loads(content)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return (_decode, (_encode(value),)) if isinstance(value, Delta) else NotImplemented


def _encode(delta: Delta) -> bytes:
    columns = [*delta.columns, pa.array(delta.weights)]
    batch = pa.record_batch(columns, [str(at) for at in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _decode(content: bytes) -> Delta:
    with pa.ipc.open_stream(content) as reader:
        *columns, weights = reader.read_next_batch().columns
    return Delta(tuple(columns), np.array(weights.to_numpy(), np.int64))
