"""The part of a look-up that runs in Spark's tasks: columns of keys in, answers out, through the cache of the worker process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.data.operation import DELETE
from penstock.errors import DataError, PenstockError
from penstock.transforms.failed_rows import TaskFailed
from penstock.transforms.lookup.cache import TtlCache
from penstock.transforms.lookup.keyed import Answer, LookupBackend, LookupClient, RefusedKey, Row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

ERROR, FOUND = "error", "found"
_WORKER: dict[str, tuple[LookupClient, TtlCache[Answer | None]]] = {}
"""What this process keeps from one task to the next, by the id of the look-up."""
_MOST_LOOKUPS = 32
HINT = "`on_error: drop` leaves such rows out, `on_error: dead_letter` stores them; `missing: null` lets keys pass that are not there"


@dataclass(frozen=True)
class Enrich:
    """Batches of keys to batches of structs: `error`, `found`, and the values `c0`, `c1` ..."""

    id: str
    """The same for all batches that may share answers."""
    backend: LookupBackend
    cache_size: int
    ttl: float
    strict: bool
    """Whether a row that cannot be looked up ends the task, with an error that names it."""
    required: bool
    """Whether a key that is not there is an error of the row."""
    node: str
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Each batch has an array per key column, and then one with the operations of the rows, or NULL."""
        client, cache = self._connected()
        try:
            for *keys, operations in batches:
                yield self._answers(keys, operations, client, cache)
        except PenstockError as error:
            error.where = f"{self.node}{f', {error.where}' if error.where else ''}"
            raise TaskFailed(error) from error

    def _connected(self) -> tuple[LookupClient, TtlCache[Answer | None]]:
        if self.id not in _WORKER:
            while len(_WORKER) >= _MOST_LOOKUPS:
                oldest, _ = _WORKER.pop(next(iter(_WORKER)))
                oldest.close()
            _WORKER[self.id] = (self.backend.connect(), TtlCache(size=self.cache_size, ttl=self.ttl))
        return _WORKER[self.id]

    def _answers(
        self,
        columns: Sequence[pa.Array],
        operations: pa.Array,
        client: LookupClient,
        cache: TtlCache[Answer | None],
    ) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        from penstock.data.schema import to_arrow_type

        positions, keys = distinct(columns)
        answers, absent = cache.get(keys)
        if absent:
            fetched = client.fetch(absent)  # type: ignore[arg-type]  # keys are tuples
            fresh = [(key, fetched.get(key)) for key in absent]  # type: ignore[call-overload]
            cache.put(fresh)
            answers.update(fresh)
        # Keys with NULL, which are nowhere, are behind the last one.
        unique = [*(answers[key] for key in keys), None]
        takes = pa.array(positions)
        rows = [answer.values if isinstance(answer, Row) else None for answer in unique]
        error = [answer.reason if isinstance(answer, RefusedKey) else None for answer in unique]
        has_row = pa.array([row is not None for row in rows])
        reasons = pa.array(error, pa.string()).take(takes)
        if self.required:
            missing = pc.and_(pc.invert(has_row.take(takes)), reasons.is_null())
            missing = pc.and_(missing, pc.fill_null(pc.not_equal(operations, DELETE), True))
            reasons = pc.if_else(missing, pa.scalar("the key is not there"), reasons)
        if self.strict and reasons.null_count < len(reasons):
            self._raise(columns, reasons)
        values = [
            pa.array([None if row is None else row[at] for row in rows], to_arrow_type(kind)).take(takes)
            for at, kind in enumerate(self.backend.kinds)
        ]
        labels = [ERROR, FOUND, *(f"c{at}" for at in range(len(values)))]
        return pa.StructArray.from_arrays([reasons, has_row.take(takes), *values], labels)

    def _raise(self, columns: Sequence[pa.Array], reasons: pa.Array) -> None:
        import pyarrow.compute as pc

        failed = reasons.is_valid()
        first = int(pc.index(failed, True).as_py())
        key = ", ".join(
            f"{name} = {column[first].as_py()!r}" for name, column in zip(self.names, columns, strict=True)
        )
        count = int(pc.sum(failed).as_py())
        raise DataError(
            f"{count} of {len(reasons)} rows cannot be looked up; the first one, with {key}: {reasons[first].as_py()}",
            code="LOOKUP_ROW",
            hint=HINT,
        )


def distinct(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """The different keys of a batch, and for each row the index of its key; the index behind the last one when a part
    of its key is NULL."""
    import numpy as np

    encoded = [_flat(column).dictionary_encode() for column in columns]
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    null = np.zeros(len(columns[0]), dtype=bool)
    for column in encoded:
        part = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        null |= column.indices.is_null().to_numpy(zero_copy_only=False)
        # Made dense after each column, so that many columns cannot overflow.
        _, codes = np.unique(codes * max(1, len(column.dictionary)) + part, return_inverse=True)
    if len(encoded) == 1 and not null.any():
        [only] = encoded
        positions = only.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return positions, [(value,) for value in only.dictionary.to_pylist()]
    with_key = np.flatnonzero(~null)
    unique, first, inverse = np.unique(codes[with_key], return_index=True, return_inverse=True)
    positions = np.full(len(codes), len(unique), dtype=np.int64)
    positions[with_key] = inverse
    rows = with_key[first]
    parts = [column.take(rows).to_pylist() for column in map(_flat, columns)]
    return positions, list(zip(*parts, strict=True)) if len(rows) else []


def _flat(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column
