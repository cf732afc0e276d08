"""Rows that are computed and then forgotten: for measurements."""

from __future__ import annotations

from typing import ClassVar

from penstock.sinks.base import Epoch, Guarantee, Sink, counted


class BlackholeSink(Sink):
    """Computes every row and keeps none."""

    needs_checkpoint = False
    takes_operations: ClassVar[bool] = True

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    def write(self, epoch: Epoch) -> int | None:
        frame, rows = counted(epoch.frame)
        frame.write.format("noop").mode("overwrite").save()
        return rows()
