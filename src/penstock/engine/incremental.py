"""`ps.to_incremental`: one DataFrame that follows the rows of one of its leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.engine.flow import IncrementalFlow
from penstock.engine.session import Session
from penstock.engine.summary import StepSummary
from penstock.engine.watch import Watch
from penstock.errors import ConfigError
from penstock.plan.explain import Explanation
from penstock.spark.catalyst import over_leaf
from penstock.spark.table import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_incremental(
    df: DataFrame,
    *,
    source: str | DataFrame | None = None,
    primary_key: str | Sequence[str] | None = None,
) -> IncrementalDataFrame:
    """Return a DataFrame whose result follows changes of the rows that it is made of.

    The rows that its leaf has now are the first content. With several leaves `source` says which one changes, by the name of
    the table or alias, or as a DataFrame from which `df` was built; the others stay as they are. With a primary key a
    row replaces the one with its key, and a delete needs only the key.

    >>> inc = ps.to_incremental(orders.groupBy("customer").sum("amount"))      # doctest: +SKIP
    >>> inc.insert([{"id": 3, "customer": 7, "amount": 5}]).rows_out           # doctest: +SKIP
    2
    """
    over = over_leaf(df, source)
    flow = IncrementalFlow(Session.over(df.sparkSession))
    key = primary_key if primary_key is None or isinstance(primary_key, str) else list(primary_key)
    flow.register_source(over.name, over.leaf.schema, primary_key=key)
    view = f"{over.name}_view"
    flow.register_view(view, over.frame)
    flow.tick(over.name, read_table(over.leaf, over.leaf.columns, where=f"source '{over.name}'"))
    return IncrementalDataFrame(flow, over.name, view, has_key=key is not None)


@dataclass(slots=True)
class Transaction:
    """Changes that become one tick; `summary` is there when it has ended."""

    deltas: list[DeltaBatch]
    summary: StepSummary | None = None


class IncrementalDataFrame:
    """A flow with one source and one view; `flow` has everything else that flows can do.

    A change outside of a transaction is a tick of its own and returns its summary. Calls of other threads wait for the end of a
    transaction.
    """

    def __init__(self, flow: IncrementalFlow, source: str, view: str, *, has_key: bool) -> None:
        self.flow = flow
        self.source = source
        self.view = view
        self._has_key = has_key
        self._lock = RLock()
        self._transaction: Transaction | None = None

    def insert(self, rows: Any) -> StepSummary | None:
        """Add rows."""
        return self._change(DeltaBatch.inserts(rows))

    def delete(self, rows: Any) -> StepSummary | None:
        """Take rows away; with a primary key their keys are enough. DataError when one is not there."""
        return self._change(DeltaBatch.deletes(rows))

    def update(self, rows: Any, new: Any = None, *, keys: Sequence[str] | None = None) -> StepSummary | None:
        """Put `new` rows in the place of others; or, without them, put rows in the place of those with the same `keys`.

        `keys` may be left out when there is a primary key. A key that is not there yet is added.
        """
        if new is not None:
            return self._change(DeltaBatch.updates(rows, new))
        if keys is not None:
            return self._change(DeltaBatch.upserts(rows, keys=list(keys)))
        if self._has_key:
            return self._change(DeltaBatch.inserts(rows))
        raise ConfigError(
            "an update needs the old rows or a key",
            code="FLOW_KEYS",
            hint='update(old, new), update(rows, keys=["id"]), or to_incremental(df, primary_key="id")',
        )

    def apply_cdc(self, rows: Any, *, op: str = "op", keys: Sequence[str]) -> StepSummary | None:
        """Apply the rows of a change stream, whose column `op` says what happened to the row with these keys."""
        return self._change(DeltaBatch.from_cdc(rows, op=op, keys=list(keys)))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make one tick of all changes of the body; when it raises, they are forgotten.

        A transaction inside of another one is a part of it; when it raises, only its own changes are forgotten.
        """
        with self._lock:
            outer = self._transaction
            transaction = outer or Transaction([])
            before = len(transaction.deltas)
            self._transaction = transaction
            try:
                yield transaction
            except BaseException:
                del transaction.deltas[before:]
                raise
            finally:
                self._transaction = outer
            if outer is None and transaction.deltas:
                transaction.summary = self.flow.tick_all(self.source, transaction.deltas)

    def snapshot(self) -> pa.Table:
        """Return the result, in its order when it has one."""
        return self.flow.snapshot(self.view)

    def changes(self, *, snapshot: bool = False) -> Watch:
        """Return the changes of the result from now on; `snapshot` gives its rows first."""
        return self.flow.watch_output(self.view, snapshot=snapshot)

    def explain(self) -> Explanation:
        """Return the operators of the result with their tier, cost and reason."""
        return self.flow.explain(self.view)

    def close(self) -> None:
        """End the watches; also the end of `with`. Spark goes on."""
        self.flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, delta: DeltaBatch) -> StepSummary | None:
        with self._lock:
            if self._transaction is None:
                return self.flow.tick(self.source, delta)
            self.flow.check(self.source, delta)
            self._transaction.deltas.append(delta)
            return None
