"""What travels between the driver and shards, and between shards, as bytes: rows are Arrow IPC, everything else is pickled.

The processes that talk to each other run the same version of penstock; nothing of this is a file format.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta

_SMALL = 16_384

Content = bytes | bytearray | memoryview | pickle.PickleBuffer


def dumps(value: Any) -> bytes:
    """Anything that a pickle can hold, with rows in it."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def loads(content: Content) -> Any:
    """What `dumps` has written."""
    return pickle.loads(content)


def parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """The same in pieces: what is large lies beside the pickle, where it was."""
    buffer, beside = io.BytesIO(), list[memoryview]()

    def put_beside(piece: pickle.PickleBuffer) -> bool:
        raw = piece.raw()
        if raw.nbytes < _SMALL:
            return True
        beside.append(raw)
        return False

    _Pickler(buffer, protocol=5, buffer_callback=put_beside).dump(value)
    return buffer.getvalue(), beside


def joined(content: Content, beside: Sequence[Content]) -> Any:
    """What `parts` has taken apart."""
    return pickle.loads(content, buffers=beside)


def piece(content: Content) -> pickle.PickleBuffer:
    """Bytes that need not be copied on their way."""
    return pickle.PickleBuffer(content)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return (_decode, (_encode(value),)) if isinstance(value, Delta) else NotImplemented


def _encode(delta: Delta) -> pickle.PickleBuffer:
    columns = [*delta.columns, pa.array(delta.weights)]
    batch = pa.record_batch(columns, [str(at) for at in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pickle.PickleBuffer(sink.getvalue())


def _decode(content: Content) -> Delta:
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        *columns, weights = reader.read_next_batch().columns
    return Delta(tuple(columns), np.array(weights.to_numpy(), np.int64))
